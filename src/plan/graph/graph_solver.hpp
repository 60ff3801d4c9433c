// Solvers of the rematerialisation problem on graphs of tasks, by name: the fastest schedule whose
// peak is within a budget.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/graph/computation_graph.hpp"

namespace garonne::plan {

struct GraphSolverOptions {
  std::uint64_t seed = 1;
  // Rounds of annealing, or nodes of branch and bound; 0 for as many as the solver thinks right.
  // The answer is a function of graph, budget, seed and iterations.
  std::int64_t iterations = 0;
  // 0 for none. With one the answer may depend on the clock.
  double time_limit_seconds = 0;
};

struct GraphAnswer {
  std::optional<TaskSchedule> schedule;  // absent where none was found that fits
  double seconds = 0;                    // of the schedule
  std::int64_t peak_bytes = 0;           // of the schedule
  // No legal schedule that fits is faster.
  double lower_bound_seconds = 0;
  // No schedule of this solver's class is faster, where it has one: `checkmate` runs tasks the
  // first time in the order of the list, and a task at most once between two such first runs.
  std::optional<double> class_bound_seconds;
  // The smallest budget known: `annealing` and `checkmate` answer from there on.
  std::int64_t minimum_bytes = 0;
  bool proved = false;  // the schedule is the fastest of the solver's class
  bool stopped_by_time_limit = false;
};

struct GraphSolver {
  std::string name;
  std::string help;
  std::size_t most_tasks = 0;  // of the graphs that it takes; 0 for any
  // Looks for a proof on HiGHS: without a limit of time or nodes that may take for ever.
  bool is_integer_program = false;
  std::function<GraphAnswer(const ComputationGraph&, std::int64_t budget_bytes,
                            const GraphSolverOptions&)>
      solve;
};

const std::vector<GraphSolver>& graph_solvers();
// Throws ConfigError for an unknown name.
const GraphSolver& graph_solver(const std::string& name);

// Why the solver has no answer to this graph, in words that follow its name; empty where it has.
std::string refusal_of(const GraphSolver& solver, const ComputationGraph& graph);

// A schedule that is at least as good as the given legal one: within the budget if one is found,
// then faster; else with a smaller peak. Deterministic unless options have a time limit.
TaskSchedule improve_schedule(const ComputationGraph& graph, const TaskSchedule& schedule,
                              std::int64_t budget_bytes, const GraphSolverOptions& options);

}  // namespace garonne::plan
