// What solvers of chains have in common where they plan a stage: its budgets in terms of its chain,
// and their answers as schedules of nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/chain/rotor_table.hpp"
#include "plan/stage/stage_solver.hpp"

namespace garonne::plan {

// The chain's model of memory counts a little more than the nodes need, so that sequences for a
// budget larger by so much may fit, too: the planner traces them all.
inline constexpr double largest_chain_budget = 1.3;
constexpr std::int64_t most_chain_bytes(std::int64_t available) {
  return static_cast<std::int64_t>(largest_chain_budget * static_cast<double>(available));
}

// Why solvers of chains have no answer; empty where there is a chain.
std::string refusal_without_chain(const StageProblem& problem);

// As many slots of tables over memory as a stage's chain is worth.
RotorOptions chain_options(const Chain& chain);

// What is there for the chain where all of the micro-batch may take `budget_bytes`; 0 for nothing.
// `weight_bytes`: of what lasts beside that budget, which the chain counts as its own.
std::int64_t available_to_chain(const StageProblem& problem, std::int64_t budget_bytes,
                                std::int64_t weight_bytes = 0);

// None where there is no sequence, or one of too many steps.
std::optional<NodeSchedule> schedule_of_sequence(
    const StageProblem& problem, const std::optional<std::vector<ChainOperation>>& sequence);

// Of deep models the least budget takes too many steps: then about the least that does not.
// `schedule_within` is asked for budgets of the chain above `too_little`, none above `enough`.
std::optional<NodeSchedule> shortest_schedule(
    std::int64_t too_little, std::int64_t enough,
    const std::function<std::optional<NodeSchedule>(std::int64_t)>& schedule_within);

}  // namespace garonne::plan
