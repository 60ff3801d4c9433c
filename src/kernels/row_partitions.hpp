// How sums over rows are cut; private to this room.
#pragma once

#include <algorithm>
#include <cstdint>

namespace garonne::kernels {

// Of layer norm's backward: enough to occupy many threads, few enough to be cheap to add up; at
// least 16 rows each.
constexpr std::int64_t row_partitions(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / 16, 1, 32);
}

}  // namespace garonne::kernels
