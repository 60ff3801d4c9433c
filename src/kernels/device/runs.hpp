// Runs of points as kernels take them along; private to this room.
#pragma once

#include "base/error.hpp"
#include "kernels/point_run.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace garonne::kernels::device {

// In the order of points and apart from each other, as the host has them.
struct RunList {
  // With the rest of a kernel in the 4 KiB that a launch may take along.
  static constexpr std::size_t most = 192;

  PointRun runs[most];
  std::int64_t count = 0;

  KOKKOS_FUNCTION bool has(std::int64_t point) const {
    std::int64_t first = 0;
    std::int64_t last = count;
    while (first < last) {
      const std::int64_t middle = (first + last) / 2;
      if (runs[middle].first + runs[middle].count <= point) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first < count && runs[first].first <= point;
  }
};

// InternalError where there are more runs than a launch takes along.
inline RunList run_list(std::span<const PointRun> runs) {
  expect(runs.size() <= RunList::most, "a device kernel takes " + std::to_string(RunList::most) +
                                           " runs of points at most, not " +
                                           std::to_string(runs.size()));
  RunList list;
  list.count = static_cast<std::int64_t>(runs.size());
  std::copy(runs.begin(), runs.end(), list.runs);
  return list;
}

inline std::int64_t points_of(std::span<const PointRun> runs) {
  std::int64_t points = 0;
  for (const PointRun& run : runs) points += run.count;
  return points;
}

}  // namespace garonne::kernels::device
