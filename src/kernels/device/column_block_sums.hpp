// One or two sums over the rows of a block for each column; private to this room.
#pragma once

#include "kernels/device/team.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// A team has 32 columns of a block: group g has its rows g, g + 8, …, and the groups are added in
// order.
template <typename G, int count, typename Terms>
struct ColumnBlockSums {
  static constexpr int groups = 8;

  Terms terms;  // with add(place in [rows, columns], row, column, sum), or of two sums
  G* sums;      // [blocks, count, columns]
  std::int64_t blocks;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t tiles;  // of 32 columns

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    G* const parts = team.template shared<G>(count * Team::threads);
    const std::int64_t block = index / tiles;
    const std::int64_t first_column = index % tiles * lanes_of_group;
    const std::int64_t last = rows * (block + 1) / blocks;
    team.each(Team::threads, [&](int thread) {
      const std::int64_t column = first_column + thread % lanes_of_group;
      G first = 0;
      [[maybe_unused]] G second = 0;
      if (column < columns) {
        for (std::int64_t row = rows * block / blocks + thread / lanes_of_group; row < last;
             row += Team::groups) {
          if constexpr (count == 2) {
            terms.add(row * columns + column, row, column, first, second);
          } else {
            terms.add(row * columns + column, row, column, first);
          }
        }
      }
      parts[thread] = first;
      if constexpr (count == 2) parts[Team::threads + thread] = second;
    });
    team.wait();
    team.each(count * lanes_of_group, [&](int i) {
      const std::int64_t column = first_column + i % lanes_of_group;
      if (column >= columns) return;
      const int which = i / lanes_of_group;
      const G* const own = parts + which * Team::threads + i % lanes_of_group;
      G total = own[0];
      for (int group = 1; group < Team::groups; ++group) total += own[group * lanes_of_group];
      sums[(count * block + which) * columns + column] = total;
    });
  }
};

// sums [blocks, count, columns] of what `terms` adds for the elements of [rows, columns].
template <int count, typename G, typename Space, typename Terms>
void sum_column_blocks(const Space& space, const Terms& terms, G* sums, std::int64_t blocks,
                       std::int64_t rows, std::int64_t columns) {
  using Kernel = ColumnBlockSums<G, count, Terms>;
  const std::int64_t tiles = (columns + lanes_of_group - 1) / lanes_of_group;
  for_teams<Kernel::groups>(space, blocks * tiles,
                            shared_bytes<G>(count * Kernel::groups * lanes_of_group),
                            Kernel{terms, sums, blocks, rows, columns, tiles});
}

}  // namespace garonne::kernels::device
