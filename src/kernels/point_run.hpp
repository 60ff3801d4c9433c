// Runs of the points of a sample.
#pragma once

#include <cstdint>

namespace garonne::kernels {

// Points first … first + count of a sample.
struct PointRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

}  // namespace garonne::kernels
