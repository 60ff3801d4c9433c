#include "plan/graph/graph_solver.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "plan/graph/checkmate.hpp"
#include "plan/graph/graph_annealing.hpp"
#include "plan/graph/linear_program.hpp"

namespace garonne::plan {

const std::vector<GraphSolver>& graph_solvers() {
  static const std::vector<GraphSolver> solvers = {
      {"annealing", "search on sequences, for graphs of thousands of tasks", 0, false,
       solve_by_annealing},
      {"checkmate", "mixed-integer program, proves the optimum of small graphs",
       most_checkmate_tasks, true, solve_by_checkmate},
      {"checkmate-rounding", "the linear relaxation of checkmate, rounded", most_checkmate_tasks,
       true, solve_by_checkmate_rounding},
  };
  return solvers;
}

const GraphSolver& graph_solver(const std::string& name) {
  std::string known;
  for (const GraphSolver& solver : graph_solvers()) {
    if (solver.name == name) return solver;
    known += (known.empty() ? "" : ", ") + solver.name;
  }
  throw ConfigError("algorithm", name, "is no solver of graphs; there are " + known);
}

std::string refusal_of(const GraphSolver& solver, const ComputationGraph& graph) {
  if (solver.most_tasks > 0 && graph.tasks.size() > solver.most_tasks) {
    return fmt::format(
        "takes graphs of up to {} tasks and this one has {}: annealing takes thousands",
        solver.most_tasks, graph.tasks.size());
  }
  if (solver.is_integer_program && !has_linear_program_solver())
    return "needs a solver of linear programs, which this build does not have";
  return "";
}

}  // namespace garonne::plan
