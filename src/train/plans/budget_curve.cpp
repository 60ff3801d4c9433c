#include "train/plans/budget_curve.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/setup/lower_tiers.hpp"

namespace garonne::train {

BudgetCurve budget_curve(const Setup& setup, int points,
                         const std::function<void(int, int)>& progress) {
  expect(points >= 2, "a curve has two points at least");
  BudgetCurve curve;
  std::set<std::tuple<std::string, std::int64_t, double>> policies;
  Setup whole = setup;
  whole.config.memory.plan = widest_plan(whole.config);
  std::int64_t least = 0;
  std::int64_t reserved = 0;
  const auto plan_at = [&](std::int64_t budget_bytes) {
    const GridPlan plan = plan_grid(whole, budget_bytes);
    least = plan.minimum_budget_bytes;
    const PlannedStage& largest = plan.stages[plan.largest];
    reserved = largest.choice.reserved_bytes;
    // What policies make of one stage says nothing about the seconds of a step of all.
    if (plan.stages.size() == 1) {
      for (const auto& candidate : largest.choice.candidates)
        policies.emplace(candidate.name, candidate.peak_bytes, candidate.seconds);
    }
    return CurvePoint{budget_bytes, largest.choice.program.name, largest.prediction.peak_bytes,
                      plan.seconds};
  };
  const CurvePoint fastest = plan_at(std::numeric_limits<std::int64_t>::max());
  const std::int64_t most = std::max(least, fastest.peak_bytes + reserved);
  for (int i = 0; i < points; ++i) {
    const std::int64_t budget = least + (most - least) / (points - 1) * i;
    curve.points.push_back(plan_at(i == points - 1 ? most : budget));
    progress(i + 1, points);
  }
  for (const auto& [name, bytes, seconds] : policies)
    curve.policies.push_back({name, bytes, seconds});
  return curve;
}

nlohmann::ordered_json to_json(const BudgetCurve& curve) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const auto& point : curve.points) {
    points.push_back({{"budget_bytes", point.budget_bytes},
                      {"plan", point.plan},
                      {"peak_bytes", point.peak_bytes},
                      {"seconds", point.seconds}});
  }
  nlohmann::ordered_json policies = nlohmann::ordered_json::array();
  for (const auto& policy : curve.policies) {
    policies.push_back(
        {{"name", policy.name}, {"peak_bytes", policy.peak_bytes}, {"seconds", policy.seconds}});
  }
  return {{"points", std::move(points)}, {"policies", std::move(policies)}};
}

}  // namespace garonne::train
