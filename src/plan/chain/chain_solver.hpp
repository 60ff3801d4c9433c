// Solvers of the chain problem, by name. Adding one takes a file and a line of the registry.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/chain/chain.hpp"
#include "plan/chain/chain_gaps.hpp"
#include "plan/chain/chain_json.hpp"

namespace garonne::plan {

struct ChainSolverOptions {
  // For solvers with a table over memory; 0 lets them choose.
  std::int64_t slots = 0;
  std::int64_t table_bytes = 1'000'000'000;
};

struct ChainAnswer {
  std::optional<std::vector<ChainOperation>> operations;
  // What the solver proved that no legal sequence can beat; 0 if nothing.
  double lower_bound_seconds = 0;
  std::string remark;  // how exact it is, for people
  // Where the operations come from a sequence without copies and gaps in it that are below: both.
  std::vector<ChainOperation> passes = {};
  std::vector<ChainGap> gaps = {};
};

struct ChainSolver {
  std::string name;
  std::string help;
  std::function<ChainAnswer(const Chain&, std::int64_t budget_bytes, const ChainSolverOptions&)>
      solve;
  // The least budget, in bytes, at which `solve` answers.
  std::function<std::int64_t(const Chain&)> minimum_budget;
  // Why it has no answer to a chain, as "needs …"; empty where it applies. None: it always does.
  std::function<std::string(const Chain&)> refusal = {};
  // Of those that move something: the passes that need least where all that is idle is below.
  std::function<std::vector<ChainOperation>(const Chain&)> leanest = {};
};

// All leave weights where they are but those that say that they move them.
const std::vector<ChainSolver>& chain_solvers();
// Throws ConfigError with a suggestion for an unknown name.
const ChainSolver& chain_solver(const std::string& name);

// Empty where `solver` applies to `chain`.
std::string refusal_of(const ChainSolver& solver, const Chain& chain);
// Of solvers that move something: empty where the chain has bandwidths.
std::string refusal_without_links(const Chain& chain);

// Seconds of every legal sequence of the chain, with copies where it has bandwidths.
double least_chain_seconds(const Chain& chain, std::int64_t budget_bytes);

struct SolvedChain {
  ChainSchedule schedule;
  std::string remark;
};
// Replays what the solver answers. Throws PlanError below the solver's minimum, ConfigError where
// it does not apply.
SolvedChain solve_chain(const Chain& chain, const ChainSolver& solver, std::int64_t budget_bytes,
                        const ChainSolverOptions& options);

// Every block kept with option 0.
std::vector<ChainOperation> keep_all_sequence(const Chain& chain);

// The members of the registry, each in a file of its own.
ChainSolver keep_all_solver();
ChainSolver full_solver();
ChainSolver periodic_solver();
ChainSolver chen_sqrt_solver();
ChainSolver revolve_solver();
ChainSolver rotor_solver();
ChainSolver best_solver();
ChainSolver pofo_solver();
ChainSolver offload_greedy_solver();
ChainSolver offload_greedy_star_solver();

}  // namespace garonne::plan
