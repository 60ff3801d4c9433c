// Whether a Program of a model is a whole step of it.
#pragma once

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// Versions of parameters and contributions to their gradients: every pass reads the parameters that
// the step began with; the gradient of a parameter has the contribution of each of its nodes in
// each micro-batch before it is squared and applied, and gets none once ranks have summed it; each
// element that the rank trains is updated once; no micro-batch is left out, and the sums of the
// step have all losses, in their order, and squares before they are summed over ranks and made the
// norm. Nothing is asked of Programs without a backward. Throws ReplayError. The Program must have
// been accepted by replay and be one of the model (check_against_model). Private to
// check_contents().
void check_whole_step(const Program& program, const ModelGraph& graph);

}  // namespace garonne::plan
