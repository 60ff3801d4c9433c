// The scalable solver of graphs: evictions by worth, then rounds of taking out and repairing.
#pragma once

#include "plan/graph/graph_solver.hpp"

namespace garonne::plan {

// For graphs of thousands of tasks; takes any directed acyclic graph, skips included. Without a
// guarantee: compare the answer with its lower bound.
GraphAnswer solve_by_annealing(const ComputationGraph& graph, std::int64_t budget_bytes,
                               const GraphSolverOptions& options);

// A schedule with the smallest peak that is found, without regard to seconds. Annealing fits every
// budget from that peak on.
TaskSchedule leanest_schedule(const ComputationGraph& graph, const GraphSolverOptions& options);

}  // namespace garonne::plan
