// Inner loops of tables over memory: element-wise minima of shifted rows.
#pragma once

#include <cstddef>

namespace garonne::plan {

// result[n] = min(result[n], constant + one[n] + two[n])
void take_minimum_of_sum(float* result, const float* one, const float* two, float constant,
                         std::size_t count);
// result[n] = min(result[n], constant + one[n])
void take_minimum(float* result, const float* one, float constant, std::size_t count);
void take_minimum(float* result, float constant, std::size_t count);

}  // namespace garonne::plan
