// Checkmate (Jain et al., MLSys 2020): rematerialisation as a mixed-integer program. Stage t ends
// with the first run of task t; in a stage each forward task before t may run once more, in the
// order of the list. The fastest schedule of that class is found and proved.
#pragma once

#include "plan/graph/graph_solver.hpp"

namespace garonne::plan {

// The program has tasks squared times values entries.
inline constexpr std::size_t most_checkmate_tasks = 300;

// Exact up to 1e-9 of the time. Starts from what annealing finds. Throws NotBuiltError in a build
// without a solver of linear programs, ConfigError for more than 300 tasks.
GraphAnswer solve_by_checkmate(const ComputationGraph& graph, std::int64_t budget_bytes,
                               const GraphSolverOptions& options);

// The linear relaxation rounded at several thresholds; each rounded set of kept values is completed
// by the fewest runs, and the fastest schedule that fits is the answer.
GraphAnswer solve_by_checkmate_rounding(const ComputationGraph& graph, std::int64_t budget_bytes,
                                        const GraphSolverOptions& options);

}  // namespace garonne::plan
