// What every buffer holds, followed through a Program of a model.
#pragma once

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// Tags of content: which value of which micro-batch, whose private slot, which parameters, the
// gradient of which value with which contributions. A node must find in its buffers what its
// mathematics needs: its own inputs, parameters, record and pinned values, and a gradient of its
// output that every reader of the output has contributed to; every forward with a backward has each
// of its passes once, with the parameters that the step began with, and a step that trains is a
// whole one (whole_step_check.hpp). Throws ReplayError. The Program must have been accepted by
// replay and be one of the model (check_against_model).
void check_contents(const Program& program, const ModelGraph& graph);

}  // namespace garonne::plan
