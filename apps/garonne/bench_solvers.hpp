// What `garonne bench solvers` times. A family of solvers adds a function that lists its cases.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace garonne::apps {

struct SolverCase {
  std::string problem;  // as in "chain"
  std::string solver;
  int size = 0;
  // Returns in a few words what came out.
  std::function<std::string()> run;
};

std::vector<SolverCase> chain_solver_cases();
std::vector<SolverCase> graph_solver_cases();

}  // namespace garonne::apps
