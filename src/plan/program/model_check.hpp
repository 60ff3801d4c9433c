// Whether a Program is one of a model.
#pragma once

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// That every instruction names a node, a value or a parameter that there is, hands the node what it
// takes and has room for what it makes; that every element of a parameter is trained once by the
// ranks that share its bucket. Throws ReplayError. Replay knows no models: what it accepts and this
// accepts can be run.
void check_against_model(const Program& program, const ModelGraph& graph);

}  // namespace garonne::plan
