// The fastest schedule of a small graph of tasks by looking at every state: slow, obvious, and
// without anything of the solvers.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/graph/computation_graph.hpp"

namespace garonne::plan {

// Of every legal schedule within the budget, or absent where there is none.
std::optional<double> fastest_schedule_seconds(const ComputationGraph& graph,
                                               std::int64_t budget_bytes);

// Of the schedules that run tasks the first time in the order of the list and between two such runs
// each task at most once, in that order too.
std::optional<double> fastest_in_order_seconds(const ComputationGraph& graph,
                                               std::int64_t budget_bytes);

}  // namespace garonne::plan
