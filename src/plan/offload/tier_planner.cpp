#include "plan/offload/tier_planner.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

// Budgets between the given one and keep-all's whose plans are tried: what is made again and what
// is moved are mixed in so many ways.
constexpr int mixtures = 6;

std::pair<double, std::int64_t> key(const StagePlan& plan) {
  return {plan.prediction.seconds, plan.prediction.peak_bytes};
}

// The plan with so much moved that it is within the budget; none where that cannot be.
std::optional<StagePlan> within_budget(StagePlan plan, const TierWish& wish) {
  const auto offloads =
      choose_offloads(plan.program, {wish.stage.budget_bytes, wish.tiers, wish.least_bytes});
  if (!offloads || offloads->empty()) return std::nullopt;
  std::map<Tier, TierLinks> links;
  for (const auto& [tier, below] : wish.tiers) {
    links[tier] = below.links;
    plan.program.tier(tier).budget_bytes = below.budget_bytes;
  }
  plan.program = with_offloads(std::move(plan.program), *offloads, links);
  plan.program.name += " + offload";
  plan.program.tier(Tier::Device).budget_bytes = wish.stage.budget_bytes;
  plan.prediction = replay(plan.program);
  return plan;
}

}  // namespace

StagePlan plan_stage_on_tiers(const ModelGraph& graph, const StepShape& step,
                              const TierWish& given) {
  TierWish wish = given;
  std::optional<LeanPlans> lean;
  if (wish.stage.lean == nullptr) {
    lean = find_lean_plans(graph, step, wish.stage.plan, wish.stage.cache);
    wish.stage.lean = &*lean;
  }
  std::optional<StagePlan> best;
  std::exception_ptr refusal;
  try {
    best = plan_stage(graph, step, wish.stage);
  } catch (const PlanError&) {
    refusal = std::current_exception();
  }
  const std::int64_t budget = wish.stage.budget_bytes;
  StageWish most = wish.stage;
  most.budget_bytes = std::numeric_limits<std::int64_t>::max() / 2;
  const std::int64_t whole = plan_stage(graph, step, most).prediction.peak_bytes;
  std::vector<StageCandidate> candidates;
  for (int mixture = 1; mixture <= mixtures && whole > budget; ++mixture) {
    StageWish larger = wish.stage;
    larger.budget_bytes = budget + (whole - budget) * mixture / mixtures;
    try {
      std::optional<StagePlan> plan = within_budget(plan_stage(graph, step, larger), wish);
      if (!plan) continue;
      candidates.push_back({plan->program.name, plan->prediction.peak_bytes,
                            plan->prediction.seconds, plan->prediction.peak_bytes <= budget});
      if (!candidates.back().fits || (best && key(*best) <= key(*plan))) continue;
      plan->candidates = best ? std::move(best->candidates) : std::vector<StageCandidate>();
      best = std::move(plan);
    } catch (const PlanError&) {
      // Not even that is enough to run anything twice.
    }
  }
  if (!best) std::rethrow_exception(refusal);
  best->candidates.insert(best->candidates.end(), candidates.begin(), candidates.end());
  return std::move(*best);
}

}  // namespace garonne::plan
