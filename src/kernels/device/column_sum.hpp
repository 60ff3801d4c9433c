// Sums over rows; private to this room.
#pragma once

#include "kernels/device/team.hpp"
#include "kernels/element.hpp"

#include <algorithm>
#include <cstdint>

namespace garonne::kernels::device {

// destination[column] = (or +=) the sum over rows, in the order of the CPU's loop: four rows at a
// time as (a + b) + (c + d), blocks of 64 rows, and the blocks in their order. A team has a tile of
// columns, with a thread for each of them in as many blocks as it has threads for.
template <typename T>
struct ColumnSum {
  const T* source;  // [rows, columns], rows `stride` elements apart
  Accumulation<T>* destination;
  bool accumulate;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
  int lanes = lanes_of_group;  // columns of a tile, which the threads of a team are a multiple of

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
    const std::int64_t first_column = tile * lanes;
    const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
    const int at_once = Team::threads / lanes;
    team.each(lanes, [&](int lane) { totals[lane] = 0; });
    for (std::int64_t first = 0; first < blocks; first += at_once) {
      team.each(Team::threads, [&](int thread) {
        const std::int64_t block = first + thread / lanes;
        const std::int64_t column = first_column + thread % lanes;
        if (block < blocks && column < columns) sums[thread] = block_sum(block, column);
      });
      team.wait();
      team.each(lanes, [&](int lane) {
        if (first_column + lane >= columns) return;
        const std::int64_t count = Kokkos::min<std::int64_t>(at_once, blocks - first);
        G total = totals[lane];
        for (int block = 0; block < count; ++block) total += sums[block * lanes + lane];
        totals[lane] = total;
      });
      team.wait();
    }
    team.each(lanes, [&](int lane) {
      const std::int64_t column = first_column + lane;
      if (column >= columns) return;
      destination[column] = accumulate ? destination[column] + totals[lane] : totals[lane];
    });
  }
};

template <typename Space, typename T>
void sum_columns(const Space& space, ColumnSum<T> kernel) {
  // Of few columns a tile is what memory hands over at least, 32 bytes of a row, so that more
  // multiprocessors have one.
  constexpr std::int64_t few = 64 * lanes_of_group;
  kernel.lanes = kernel.columns < few ? static_cast<int>(32 / sizeof(T)) : lanes_of_group;
  for_teams<ColumnSum<T>::groups>(space, (kernel.columns + kernel.lanes - 1) / kernel.lanes,
                                  ColumnSum<T>::scratch_bytes, kernel);
}

}  // namespace garonne::kernels::device
