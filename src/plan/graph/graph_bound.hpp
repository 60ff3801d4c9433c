// A bound on the seconds of every schedule of a graph that fits a budget.
#pragma once

#include <cstdint>

#include "plan/graph/computation_graph.hpp"

namespace garonne::plan {

// No legal schedule within the budget takes fewer seconds, in whatever order it runs. At the moment
// of a task that is once, what it and later ones read is live or has to be made again afterwards,
// from what is live; bytes are priced, and for a price the cheapest choice is a minimum cut. The
// best price (Lagrangian relaxation) and the best of several moments are taken.
double lower_bound_seconds(const ComputationGraph& graph, std::int64_t budget_bytes);

}  // namespace garonne::plan
