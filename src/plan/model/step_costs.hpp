// Costs of a step that belong to no node: the norm of the gradients and the update.
#pragma once

#include <cstdint>
#include <string>

#include "plan/model/cost_table.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// Rows of the cost table are measured on so many elements; `what` is "norm", the optimizer's name,
// or, where its updates take sums of whole parameters, that of those.
inline constexpr std::int64_t step_cost_elements = std::int64_t{1} << 21;
std::string sums_of(const std::string& optimizer);
std::string step_cost_key(const std::string& what, const std::string& precision);

// Measured costs for the nodes and for the step; true when every node had a row.
bool apply_costs(const CostTable& table, const std::string& optimizer, const std::string& precision,
                 ModelGraph& graph, StepShape& step);

}  // namespace garonne::plan
