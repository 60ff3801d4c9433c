// Sums over rows; private to this room.
#pragma once

#include "kernels/device/team.hpp"
#include "kernels/element.hpp"

#include <algorithm>
#include <cstdint>

namespace garonne::kernels::device {

// destination[column] = (or +=) the sum over rows, in the order of the CPU's loop: four rows at a
// time as (a + b) + (c + d), blocks of 64 rows, and the blocks in their order. A team has 32
// columns and adds up 32 blocks at once.
template <typename T>
struct ColumnSum {
  const T* source;  // [rows, columns], rows `stride` elements apart
  Accumulation<T>* destination;
  bool accumulate;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;

  static constexpr int groups = 32;
  static constexpr std::int64_t block_rows = 64;
  static constexpr int scratch_bytes = shared_bytes<Accumulation<T>>((groups + 1) * lanes_of_group);

  KOKKOS_FUNCTION Accumulation<T> block_sum(std::int64_t block, std::int64_t column) const {
    using G = Accumulation<T>;
    const std::int64_t end = Kokkos::min(rows, (block + 1) * block_rows);
    std::int64_t row = block * block_rows;
    const T* at = source + row * stride + column;
    G sum = 0;
    for (; row + 4 <= end; row += 4, at += 4 * stride) {
      sum =
          sum + ((load(at[0]) + load(at[stride])) + (load(at[2 * stride]) + load(at[3 * stride])));
    }
    for (; row < end; ++row, at += stride) sum += load(at[0]);
    return sum;
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t tile) const {
    using G = Accumulation<T>;
    G* const sums = team.template shared<G>((groups + 1) * lanes_of_group);
    G* const totals = sums + groups * lanes_of_group;
    const std::int64_t first_column = tile * lanes_of_group;
    const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
    team.each(lanes_of_group, [&](int lane) { totals[lane] = 0; });
    for (std::int64_t first = 0; first < blocks; first += groups) {
      team.each(Team::threads, [&](int thread) {
        const std::int64_t block = first + thread / lanes_of_group;
        const std::int64_t column = first_column + thread % lanes_of_group;
        if (block < blocks && column < columns) sums[thread] = block_sum(block, column);
      });
      team.wait();
      team.each(lanes_of_group, [&](int lane) {
        if (first_column + lane >= columns) return;
        const std::int64_t count = Kokkos::min<std::int64_t>(groups, blocks - first);
        G total = totals[lane];
        for (int block = 0; block < count; ++block) total += sums[block * lanes_of_group + lane];
        totals[lane] = total;
      });
      team.wait();
    }
    team.each(lanes_of_group, [&](int lane) {
      const std::int64_t column = first_column + lane;
      if (column >= columns) return;
      destination[column] = accumulate ? destination[column] + totals[lane] : totals[lane];
    });
  }
};

template <typename Space, typename T>
void sum_columns(const Space& space, const ColumnSum<T>& kernel) {
  for_teams<ColumnSum<T>::groups>(space, (kernel.columns + lanes_of_group - 1) / lanes_of_group,
                                  ColumnSum<T>::scratch_bytes, kernel);
}

}  // namespace garonne::kernels::device
