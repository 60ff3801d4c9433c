// How sums over points are cut; private to this room.
#pragma once

#include <algorithm>
#include <cstdint>

namespace garonne::kernels {

// Blocks of the points of a sample, of instance norm.
constexpr std::int64_t point_blocks(std::int64_t points) {
  return std::clamp<std::int64_t>(points / 64, 1, 64);
}

}  // namespace garonne::kernels
