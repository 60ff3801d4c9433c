// All that is asked of a Program besides replay.
#pragma once

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// The order of its lanes (order_check.hpp), whether it is one of the model (model_check.hpp), what
// its buffers hold (content_check.hpp). The Program must have been accepted by replay. Throws
// ReplayError.
void prove(const Program& program, const ModelGraph& graph);
// The same against the model that the Program itself tells of (implied_model.hpp).
void prove(const Program& program);

}  // namespace garonne::plan
