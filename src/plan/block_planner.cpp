#include "plan/block_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "plan/block_table.hpp"

namespace garonne::plan {
namespace {

BlockPlan build(const ModelGraph& graph, const StepShape& step, const BlockFamily& family,
                int index, std::int64_t budget_bytes) {
  BlockPlan plan;
  plan.program =
      make_training_program(graph, step, same_for_all(family.schedule(index), step.micro_batches));
  plan.prediction = replay(plan.program);
  plan.program.name =
      index == 0 ? "keep-all" : fmt::format("blocks {}/{}", index, family.size() - 1);
  plan.program.budget_bytes = budget_bytes;
  plan.program.peak_bytes = plan.prediction.peak_bytes;
  plan.program.seconds = plan.prediction.seconds;
  plan.index = index;
  return plan;
}

BlockPlan first_that_fits(const ModelGraph& graph, const StepShape& step, const BlockFamily& family,
                          std::int64_t budget_bytes, std::optional<int> known) {
  const auto fits = [&](const BlockPlan& plan) {
    return plan.prediction.peak_bytes <= budget_bytes;
  };
  if (known) {
    BlockPlan plan = build(graph, step, family, std::min(*known, family.size() - 1), budget_bytes);
    if (fits(plan)) return plan;
  }
  BlockPlan below = build(graph, step, family, 0, budget_bytes);
  if (fits(below) || family.size() == 1) return below;
  BlockPlan found = build(graph, step, family, family.size() - 1, budget_bytes);
  if (!fits(found)) return found;
  std::int64_t too_many = below.prediction.peak_bytes;
  int lower = 0;
  while (found.index - lower > 1) {
    // The peak follows what is saved.
    const auto saved = [&](int index) { return static_cast<double>(family.saved_bytes(index)); };
    const double wanted =
        saved(lower) -
        (saved(lower) - saved(found.index)) * static_cast<double>(too_many - budget_bytes) /
            static_cast<double>(std::max<std::int64_t>(too_many - found.prediction.peak_bytes, 1));
    int index = lower + 1;
    while (index + 1 < found.index && saved(index) > wanted) ++index;
    BlockPlan next = build(graph, step, family, index, budget_bytes);
    if (fits(next)) {
      found = std::move(next);
    } else {
      lower = index;
      too_many = next.prediction.peak_bytes;
    }
  }
  return found;
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
  lean.reductions_in_flight = 1;
  lean.reduce_each_micro_batch =
      step.zero >= 2 && step.micro_batches > 1 && step.pipeline.order.empty();
  plan = first_that_fits(graph, lean, family, budget_bytes, std::nullopt);
  if (plan.prediction.peak_bytes > budget_bytes)
    throw PlanError(plan.prediction.peak_bytes, budget_bytes, "");
  plan.program.name += ", least communication under way";
  return plan;
}

}  // namespace garonne::plan
