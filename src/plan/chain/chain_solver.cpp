#include "plan/chain/chain_solver.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/chain/chain_lower_bound.hpp"
#include "plan/chain/chain_replay.hpp"

namespace garonne::plan {

const std::vector<ChainSolver>& chain_solvers() {
  static const std::vector<ChainSolver> registry = {
      keep_all_solver(), full_solver(),  periodic_solver(), chen_sqrt_solver(),
      revolve_solver(),  rotor_solver(), best_solver()};
  return registry;
}

const ChainSolver& chain_solver(const std::string& name) {
  std::string names;
  for (const auto& solver : chain_solvers()) {
    if (solver.name == name) return solver;
    names += (names.empty() ? "" : ", ") + solver.name;
  }
  throw ConfigError("--algorithm", name, "is no solver of chains; there are " + names);
}

SolvedChain solve_chain(const Chain& chain, const ChainSolver& solver, std::int64_t budget_bytes,
                        const ChainSolverOptions& options) {
  SolvedChain solved;
  ChainSchedule& schedule = solved.schedule;
  schedule.algorithm = solver.name;
  schedule.budget_bytes = budget_bytes;
  schedule.minimum_budget_bytes = solver.minimum_budget(chain);
  if (budget_bytes < schedule.minimum_budget_bytes)
    throw PlanError(schedule.minimum_budget_bytes, budget_bytes, "by " + solver.name);
  ChainAnswer answer = solver.solve(chain, budget_bytes, options);
  expect(answer.operations.has_value(), solver.name + " answers from its minimum on");
  const ChainReplay replay = replay_chain(chain, *answer.operations);
  expect(replay.peak_bytes <= budget_bytes, solver.name + " stays within the budget");
  schedule.peak_bytes = replay.peak_bytes;
  schedule.seconds = replay.seconds;
  schedule.lower_bound_seconds = std::min(
      replay.seconds,
      std::max(answer.lower_bound_seconds, chain_lower_bound_seconds(chain, budget_bytes)));
  schedule.keep_all = replay_chain(chain, keep_all_sequence(chain));
  schedule.operations = std::move(*answer.operations);
  solved.remark = std::move(answer.remark);
  return solved;
}

}  // namespace garonne::plan
