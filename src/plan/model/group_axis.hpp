// The groups of ranks that a step communicates in.
#pragma once

#include <string_view>

namespace garonne::plan {

// Axes of the grid; the stages with copies of tied parameters; all ranks.
enum class GroupAxis { Data, Pipeline, Tensor, Tied, World };
inline constexpr int group_axis_count = 5;

// "tensor", "data", "pipeline", "tied", "world".
std::string_view to_string(GroupAxis axis);

}  // namespace garonne::plan
