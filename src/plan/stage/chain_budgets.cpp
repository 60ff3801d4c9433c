#include "plan/stage/chain_budgets.hpp"

#include <algorithm>
#include <utility>

#include "plan/graph/liveness.hpp"

namespace garonne::plan {

std::string refusal_without_chain(const StageProblem& problem) {
  return problem.chain ? "" : "no single value passes between the blocks of this stage";
}

// Of 4 bytes each; chains of up to 255 blocks have all slots.
RotorOptions chain_options(const Chain& chain) {
  constexpr std::int64_t most_cells = std::int64_t{1} << 26;
  const auto blocks = static_cast<std::int64_t>(chain.blocks.size());
  RotorOptions options;
  options.slots = std::clamp<std::int64_t>(most_cells / (blocks * (blocks + 1) / 2), 200, 2'000);
  return options;
}

std::int64_t available_to_chain(const StageProblem& problem, std::int64_t budget_bytes,
                                std::int64_t weight_bytes) {
  const NodeSchedule all = recompute_on_demand(problem.model, keep_everything(problem.model));
  const LivenessTrace keep_all =
      trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, all));
  return std::max<std::int64_t>(0, std::min(budget_bytes, keep_all.peak_bytes) -
                                       problem.chain->resident_bytes + weight_bytes);
}

std::optional<NodeSchedule> schedule_of_sequence(
    const StageProblem& problem, const std::optional<std::vector<ChainOperation>>& sequence) {
  if (!sequence) return std::nullopt;
  NodeSchedule schedule = expand(problem.model, *problem.chain, *sequence);
  if (problem.too_long(schedule.size())) return std::nullopt;
  return schedule;
}

std::optional<NodeSchedule> shortest_schedule(
    std::int64_t too_little, std::int64_t enough,
    const std::function<std::optional<NodeSchedule>(std::int64_t)>& schedule_within) {
  if (enough <= too_little) return std::nullopt;
  std::optional<NodeSchedule> found = schedule_within(enough);
  while (found && enough - too_little > enough / 1024) {
    const std::int64_t between = too_little + (enough - too_little) / 2;
    auto leaner = schedule_within(between);
    (leaner ? enough : too_little) = between;
    if (leaner) found = std::move(leaner);
  }
  return found;
}

}  // namespace garonne::plan
