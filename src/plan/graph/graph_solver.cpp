#include "plan/graph/graph_solver.hpp"

#include "base/error.hpp"
#include "plan/graph/checkmate.hpp"
#include "plan/graph/graph_annealing.hpp"

namespace garonne::plan {

const std::vector<GraphSolver>& graph_solvers() {
  static const std::vector<GraphSolver> solvers = {
      {"annealing", "search on sequences, for graphs of thousands of tasks", solve_by_annealing},
      {"checkmate", "mixed-integer program, proves the optimum of small graphs",
       solve_by_checkmate},
      {"checkmate-rounding", "its linear relaxation, rounded", solve_by_checkmate_rounding},
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

}  // namespace garonne::plan
