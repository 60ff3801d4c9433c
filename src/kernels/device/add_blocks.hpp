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

// *total += the sum over blocks 0 to blocks - 1, each by a team of `kernel`, which leaves that of
// its block in `sums` [blocks].
template <typename Space, typename Kernel>
void add_sum_of_blocks(const Space& space, std::int64_t blocks, const Kernel& kernel, double* sums,
                       double* total) {
  constexpr int groups = 8;
  for_teams<groups>(space, blocks, shared_bytes<double>(groups), kernel);
  for_teams<groups>(space, 1, shared_bytes<double>(groups), AddBlocks{sums, blocks, total});
}

}  // namespace garonne::kernels::device
