#include "plan/chain/chain_solver.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/chain/chain_bandwidth_bound.hpp"
#include "plan/chain/chain_lower_bound.hpp"
#include "plan/chain/chain_replay.hpp"

namespace garonne::plan {
namespace {

// For a solver that knows of no weights: they take their bytes all the time.
ChainSolver with_weights_there(ChainSolver solver) {
  ChainSolver around = solver;
  around.solve = [solve = solver.solve](const Chain& chain, std::int64_t budget_bytes,
                                        const ChainSolverOptions& options) {
    const std::int64_t weights = chain_weight_bytes(chain);
    if (weights == 0) return solve(chain, budget_bytes, options);
    return solve(without_weights(chain), budget_bytes - weights, options);
  };
  around.minimum_budget = [minimum = solver.minimum_budget](const Chain& chain) {
    const std::int64_t weights = chain_weight_bytes(chain);
    return weights == 0 ? minimum(chain) : minimum(without_weights(chain)) + weights;
  };
  return around;
}

// Without bandwidths nobody moves anything.
ChainSolver with_weights_there_if_alone(const ChainSolver& solver) {
  const ChainSolver there = with_weights_there(solver);
  ChainSolver around = solver;
  around.solve = [solver, there](const Chain& chain, std::int64_t budget_bytes,
                                 const ChainSolverOptions& options) {
    return (chain.links ? solver : there).solve(chain, budget_bytes, options);
  };
  around.minimum_budget = [solver, there](const Chain& chain) {
    return (chain.links ? solver : there).minimum_budget(chain);
  };
  return around;
}

}  // namespace

const std::vector<ChainSolver>& chain_solvers() {
  static const std::vector<ChainSolver> registry = {
      with_weights_there(keep_all_solver()), with_weights_there(full_solver()),
      with_weights_there(periodic_solver()), with_weights_there(chen_sqrt_solver()),
      with_weights_there(revolve_solver()),  with_weights_there(rotor_solver()),
      with_weights_there(pofo_solver()),     offload_greedy_solver(),
      offload_greedy_star_solver(),          with_weights_there_if_alone(best_solver())};
  return registry;
}

std::string refusal_of(const ChainSolver& solver, const Chain& chain) {
  return solver.refusal ? solver.refusal(chain) : std::string();
}

std::string refusal_without_links(const Chain& chain) {
  if (chain.links) return {};
  return "needs the bandwidths of a tier below (out_bytes_per_second, in_bytes_per_second)";
}

double least_chain_seconds(const Chain& chain, std::int64_t budget_bytes) {
  if (chain.links) return chain_bandwidth_bound_seconds(chain, budget_bytes);
  return chain_lower_bound_seconds(chain, budget_bytes - chain_weight_bytes(chain));
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
  const std::string refusal = refusal_of(solver, chain);
  if (!refusal.empty()) throw ConfigError("--algorithm", solver.name, refusal);
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
  schedule.copies = replay;
  schedule.lower_bound_seconds =
      std::min(replay.seconds,
               std::max(answer.lower_bound_seconds, least_chain_seconds(chain, budget_bytes)));
  schedule.keep_all = replay_chain(chain, keep_all_sequence(chain));
  schedule.operations = std::move(*answer.operations);
  solved.remark = std::move(answer.remark);
  return solved;
}

}  // namespace garonne::plan
