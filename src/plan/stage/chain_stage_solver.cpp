#include "plan/chain/chain_solver.hpp"

#include <limits>
#include <utility>

#include "plan/graph/liveness.hpp"
#include "plan/stage/chain_budgets.hpp"

namespace garonne::plan {
namespace {

// A solver may take a second, so the largest budget whose sequence fits is searched for, not found
// among many.
constexpr int budgets_above = 4;

std::optional<NodeSchedule> schedule_within(const StageProblem& problem, const ChainSolver& solver,
                                            std::int64_t budget_bytes) {
  return schedule_of_sequence(
      problem, solver.solve(problem.chain->chain, budget_bytes, ChainSolverOptions()).operations);
}

std::vector<NodeSchedule> solve(const StageProblem& problem, const ChainSolver& solver,
                                std::int64_t budget_bytes) {
  if (!problem.chain) return {};
  const std::int64_t available = available_to_chain(problem, budget_bytes);
  std::vector<NodeSchedule> found;
  std::int64_t fits = available;
  std::int64_t target = available;
  std::int64_t too_much = most_chain_bytes(available);
  for (int k = 0; k <= budgets_above && fits < too_much; ++k) {
    auto schedule = schedule_within(problem, solver, target);
    const bool within =
        !schedule || trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, *schedule))
                             .peak_bytes <= budget_bytes;
    (within ? fits : too_much) = target;
    target = fits + (too_much - fits) / 2;
    if (schedule) found.push_back(std::move(*schedule));
  }
  return found;
}

std::vector<NodeSchedule> leanest(const StageProblem& problem, const ChainSolver& solver) {
  if (!problem.chain) return {};
  const auto within = [&](std::int64_t budget) { return schedule_within(problem, solver, budget); };
  const std::int64_t bytes = solver.minimum_budget(problem.chain->chain);
  auto schedule = within(bytes);
  if (!schedule) {
    const std::int64_t all = available_to_chain(problem, std::numeric_limits<std::int64_t>::max());
    schedule = shortest_schedule(bytes, most_chain_bytes(all), within);
  }
  if (!schedule) return {};
  return {std::move(*schedule)};
}

}  // namespace

StageSolver chain_stage_solver(const ChainSolver& solver) {
  StageSolver row;
  row.name = solver.name;
  row.help = "on the chain of blocks: " + solver.help;
  row.in_auto = false;
  row.refusal = refusal_without_chain;
  row.solve = [solver](const StageProblem& problem, std::int64_t budget_bytes,
                       const NodeSchedule&) { return solve(problem, solver, budget_bytes); };
  row.leanest = [solver](const StageProblem& problem) { return leanest(problem, solver); };
  return row;
}

}  // namespace garonne::plan
