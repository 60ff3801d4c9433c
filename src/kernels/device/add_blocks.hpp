// The end of a sum over blocks of an array; private to this room.
#pragma once

#include "kernels/device/team.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// *total += the sums of blocks.
struct AddBlocks {
  const double* sums;
  std::int64_t blocks;
  double* total;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t) const {
    double* const groups = team.template shared<double>(Team::groups);
    const double all =
        team.template sum_of<double>(groups, blocks, [&](std::int64_t i) { return sums[i]; });
    team.each(1, [&](int) { *total += all; });
  }
};

}  // namespace garonne::kernels::device
