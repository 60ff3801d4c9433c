#include "plan/model/step_costs.hpp"

#include <fmt/format.h>

#include "plan/step/launches.hpp"

namespace garonne::plan {

std::string sums_of(const std::string& optimizer) {
  return "sums of " + optimizer;
}

std::string step_cost_key(const std::string& what, const std::string& precision) {
  return fmt::format("{} of {} elements {}", what, step_cost_elements, precision);
}

bool apply_costs(const CostTable& table, const std::string& optimizer, const std::string& precision,
                 ModelGraph& graph, StepShape& step) {
  const auto seconds_per_element = [&](const std::string& what) {
    const auto row = table.rows.find(step_cost_key(what, precision));
    if (row == table.rows.end()) return 0.0;
    return row->second.forward_seconds / static_cast<double>(step_cost_elements);
  };
  step.norm_seconds_per_element = seconds_per_element("norm");
  step.update_seconds_per_element = seconds_per_element(optimizer);
  step.sums_seconds_per_element = seconds_per_element(sums_of(optimizer));
  // Of any kernel.
  const auto update = table.rows.find(step_cost_key(optimizer, precision));
  if (update != table.rows.end() && update->second.forward_issue_seconds > 0)
    step.kernels.issue = update->second.forward_issue_seconds / launches_of_update(step);
  return apply_costs(table, graph);
}

}  // namespace garonne::plan
