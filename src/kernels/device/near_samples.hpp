// Numbers of samples where kernels reach them fast; private to this room.
#pragma once

#include "kernels/device/elementwise.hpp"
#include "kernels/device/place.hpp"

#include <cstdint>

namespace garonne::kernels::device {

struct CopyNumbers {
  const std::int64_t* from;
  std::int64_t* to;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    for (int i = 0; i < count; ++i) to[first + i] = from[first + i];
  }
};

// The `count` numbers, which may be in memory of the host, in the scratch of the place where that
// has the room: for one kernel that has every thread read some.
template <typename Space>
const std::int64_t* near_samples(const Space& space, const Place& place,
                                 const std::int64_t* samples, std::int64_t count) {
  static_assert(sizeof(std::int64_t) == sizeof(double));
  if (place.scratch == nullptr || count > scratch_doubles) return samples;
  auto* const near = reinterpret_cast<std::int64_t*>(place.scratch);
  elementwise<1>(space, count, CopyNumbers{samples, near});
  return near;
}

}  // namespace garonne::kernels::device
