// Which option of a task to run.
#pragma once

#include <vector>

#include "plan/graph/computation_graph.hpp"

namespace garonne::plan {

// The option with the fewest seconds, then bytes, that makes all `needed` values (which option 0
// makes).
int cheapest_option(const ComputationGraph& graph, int task, const std::vector<int>& needed);

}  // namespace garonne::plan
