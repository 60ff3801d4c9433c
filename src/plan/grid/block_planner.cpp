#include "plan/grid/block_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "plan/grid/block_table.hpp"
#include "plan/step/program_within.hpp"

namespace garonne::plan {
namespace {

BlockPlan build(const ModelGraph& graph, const StepShape& step, const BlockFamily& family,
                int index, std::int64_t budget_bytes) {
  BlockPlan plan;
  ProgramWithin made = make_program_within(
      graph, step, same_for_all(family.schedule(index), step.micro_batches), budget_bytes);
  plan.program = std::move(made.program);
  plan.prediction = std::move(made.prediction);
  plan.program.name =
      index == 0 ? "keep-all" : fmt::format("blocks {}/{}", index, family.size() - 1);
  plan.program.tier(Tier::Device).budget_bytes = budget_bytes;
  plan.program.peak_bytes = plan.prediction.peak_bytes;
  plan.program.seconds = plan.prediction.seconds;
  plan.index = index;
  plan.least_bytes = made.least_bytes;
  return plan;
}

// Where the bytes of the next one are predicted that far beyond the budget, it is not tried.
constexpr double prediction_slack = 0.02;

BlockPlan first_that_fits(const ModelGraph& graph, const StepShape& step, const BlockFamily& family,
                          std::int64_t budget_bytes, std::optional<int> known) {
  const auto fits = [&](const BlockPlan& plan) {
    return plan.prediction.peak_bytes <= budget_bytes;
  };
  if (known) {
    BlockPlan plan = build(graph, step, family, std::min(*known, family.size() - 1), budget_bytes);
    if (fits(plan)) return plan;
  }
  BlockPlan plan = build(graph, step, family, 0, budget_bytes);
  if (fits(plan) || family.size() == 1) return plan;
  std::vector<std::int64_t> on_the_way;
  for (int index = 0; index < family.size(); ++index)
    on_the_way.push_back(most_on_the_way(step.pipeline.order, family.saved_bytes(index)));
  std::int64_t peak = plan.least_bytes;  // of the one built last
  std::size_t built = 0;
  const auto predicted = [&](int index) {
    return peak + on_the_way[static_cast<std::size_t>(index)] - on_the_way[built];
  };
  std::optional<BlockPlan> found;
  int lower = 0;  // does not fit
  while (!found || found->index - lower > 1) {
    const int upper = found ? found->index : family.size();
    if (lower + 1 == upper) break;
    int index = lower + 1;
    while (index + 1 < upper && predicted(index) > budget_bytes) ++index;
    if (found && index + 1 == upper &&
        static_cast<double>(predicted(index)) >
            (1 + prediction_slack) * static_cast<double>(budget_bytes))
      break;
    plan = build(graph, step, family, index, budget_bytes);
    peak = plan.least_bytes;
    built = static_cast<std::size_t>(index);
    if (fits(plan))
      found = std::move(plan);
    else
      lower = index;
  }
  return found ? std::move(*found) : std::move(plan);
}

}  // namespace

BlockPlan plan_by_blocks(const ModelGraph& graph, const StepShape& step, std::int64_t budget_bytes,
                         std::optional<int> known) {
  const BlockFamily family(graph);
  BlockPlan plan = first_that_fits(graph, step, family, budget_bytes, known);
  if (plan.prediction.peak_bytes <= budget_bytes) return plan;
  // With as little as can be under way between the ranks.
  StepShape lean = step;
  lean.gathers_ahead = 0;
  lean.messages_first = false;
  plan = first_that_fits(graph, lean, family, budget_bytes, std::nullopt);
  if (plan.prediction.peak_bytes > budget_bytes)
    throw PlanError(plan.prediction.peak_bytes, budget_bytes, "");
  plan.program.name += ", least communication under way";
  return plan;
}

}  // namespace garonne::plan
