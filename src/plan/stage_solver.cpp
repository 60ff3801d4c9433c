#include "plan/stage_solver.hpp"

#include "plan/kept_search.hpp"
#include "plan/policy.hpp"

namespace garonne::plan {
namespace {

constexpr std::int64_t most_traces = 20'000;

StageSolver solver_of(const Policy& policy) {
  const auto family = policy.schedules;
  return {policy.name, policy.help,
          [family](const StageProblem& problem, std::int64_t) { return family(problem.model); },
          [family](const StageProblem& problem) { return family(problem.model); }};
}

std::vector<NodeSchedule> greedy(const StageProblem& problem, std::int64_t budget_bytes) {
  auto found = search_kept(problem.model, problem.tasks, budget_bytes, most_traces);
  if (!found) return {};
  return {std::move(found->schedule)};
}

std::vector<NodeSchedule> greedy_leanest(const StageProblem& problem) {
  return {search_leanest(problem.model, problem.tasks, most_traces).schedule};
}

}  // namespace

StageProblem make_stage_problem(const ModelGraph& model, const StepShape& step,
                                GradientBuckets buckets) {
  StageProblem problem{model, make_task_graph(model, step, buckets), std::nullopt};
  problem.chain = make_stage_chain(model, problem.tasks);
  return problem;
}

const std::vector<StageSolver>& stage_solvers() {
  static const std::vector<StageSolver> registry = [] {
    std::vector<StageSolver> solvers;
    for (const auto& policy : policies()) solvers.push_back(solver_of(policy));
    solvers.push_back({"greedy", "drop single nodes by seconds for bytes, then exchange", greedy,
                       greedy_leanest});
    return solvers;
  }();
  return registry;
}

}  // namespace garonne::plan
