#include <algorithm>

#include "plan/stage/kept_search.hpp"
#include "plan/stage/stage_solver.hpp"

namespace garonne::plan {
namespace {

// Of one core's time this is half a second whatever the size.
std::int64_t most_traces(const StageProblem& problem) {
  const auto tasks = static_cast<std::int64_t>(problem.tasks.graph.tasks.size());
  return std::clamp<std::int64_t>(1'000'000 / std::max<std::int64_t>(tasks, 1), 1'000, 20'000);
}

}  // namespace

StageSolver greedy_stage_solver() {
  StageSolver solver;
  solver.name = "greedy";
  solver.help = "drop single nodes by seconds for bytes, then exchange";
  solver.solve = [](const StageProblem& problem, std::int64_t budget_bytes,
                    const NodeSchedule&) -> std::vector<NodeSchedule> {
    auto found = search_kept(problem.model, problem.tasks, budget_bytes, most_traces(problem));
    if (!found) return {};
    return {std::move(found->schedule)};
  };
  solver.leanest = [](const StageProblem& problem) -> std::vector<NodeSchedule> {
    return {search_leanest(problem.model, problem.tasks, most_traces(problem)).schedule};
  };
  return solver;
}

}  // namespace garonne::plan
