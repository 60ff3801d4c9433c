#include <limits>
#include <utility>

#include "plan/stage/chain_budgets.hpp"

namespace garonne::plan {
namespace {

constexpr int chain_budgets = 48;

std::vector<NodeSchedule> solve(const StageProblem& problem, std::int64_t budget_bytes,
                                const NodeSchedule&) {
  if (!problem.chain) return {};
  const std::int64_t available = available_to_chain(problem, budget_bytes);
  if (available == 0) return {};
  const std::int64_t most = most_chain_bytes(available);
  const RotorTable table(problem.chain->chain, most, chain_options(problem.chain->chain));
  const std::int64_t least = table.minimum_budget_bytes();
  std::vector<NodeSchedule> found;
  for (int k = 0; k < chain_budgets && least <= most; ++k) {
    auto schedule = schedule_of_sequence(
        problem, table.sequence(least + (most - least) * k / (chain_budgets - 1)));
    if (schedule) found.push_back(std::move(*schedule));
  }
  return found;
}

std::vector<NodeSchedule> leanest(const StageProblem& problem) {
  if (!problem.chain) return {};
  const Chain& chain = problem.chain->chain;
  // Any budget tells the least one.
  RotorOptions options;
  options.slots = 1;
  const std::int64_t bytes = RotorTable(chain, 1, options).minimum_budget_bytes();
  const RotorTable least(chain, bytes, options);
  auto schedule = schedule_of_sequence(problem, least.sequence(bytes));
  if (schedule) return {std::move(*schedule)};
  const std::int64_t enough =
      most_chain_bytes(available_to_chain(problem, std::numeric_limits<std::int64_t>::max()));
  if (enough <= bytes) return {};
  const RotorTable table(chain, enough, chain_options(chain));
  schedule = shortest_schedule(bytes, enough, [&](std::int64_t budget) {
    return schedule_of_sequence(problem, table.sequence(budget));
  });
  if (!schedule) return {};
  return {std::move(*schedule)};
}

}  // namespace

StageSolver rotor_stage_solver() {
  StageSolver solver;
  solver.name = "rotor";
  solver.help =
      "the optimal persistent schedule of the chain of blocks, each with the options of what it "
      "keeps";
  solver.refusal = refusal_without_chain;
  solver.solve = solve;
  solver.leanest = leanest;
  return solver;
}

}  // namespace garonne::plan
