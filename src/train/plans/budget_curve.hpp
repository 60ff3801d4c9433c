// Seconds of a step against the budget: what the planner reaches, and the policies it is held
// against.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/setup/planning.hpp"

namespace garonne::train {

// The planner's answer to one budget.
struct CurvePoint {
  std::int64_t budget_bytes = 0;
  std::string plan;
  std::int64_t peak_bytes = 0;
  double seconds = 0;
};

// A plan that one policy or solver came to at one of the budgets.
struct PolicyPoint {
  std::string name;
  std::int64_t peak_bytes = 0;
  double seconds = 0;
};

struct BudgetCurve {
  std::vector<CurvePoint> points;  // budgets ascend from the smallest to keep-everything
  // By name, then bytes; no two are equal. None in a pipeline, whose stages have plans of their
  // own.
  std::vector<PolicyPoint> policies;
};

// Plans `setup` of all stages at `points` >= 2 budgets, evenly from the smallest that works to the
// peak of the fastest plan, whatever memory.plan says. `progress` is told (done, all).
BudgetCurve budget_curve(const Setup& setup, int points,
                         const std::function<void(int, int)>& progress);

nlohmann::ordered_json to_json(const BudgetCurve& curve);

}  // namespace garonne::train
