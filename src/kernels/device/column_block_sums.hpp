// One or two sums over the rows of a block for each column; private to this room.
#pragma once

#include "kernels/device/elementwise.hpp"

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

// The same for columns in packs of T, which `terms` fetches at a place of a row and adds to sums of
// its columns: thread t has pack t % 8 of its team's and the block's rows t / 8, t / 8 + 32, …, and
// these are added in order.
template <int count, typename T, typename Terms>
struct PackedColumnBlockSums {
  using G = Accumulation<T>;
  using Sums = Values<G, pack<T>>;

  static constexpr int groups = 8;
  static constexpr int lanes = 8;
  static constexpr int at_once = groups * lanes_of_group / lanes;  // rows
  static constexpr int tile = lanes * pack<T>;                     // columns
  static constexpr int sums_of_team = count * at_once * tile;

  Terms terms;
  G* sums;  // [blocks, count, columns]
  std::int64_t blocks;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t tiles;

  KOKKOS_FUNCTION void add(const typename Terms::Terms& fetched, Sums& first, Sums& second) const {
    if constexpr (count == 2) {
      terms.add(fetched, first, second);
    } else {
      terms.add(fetched, first);
    }
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    G* const parts = team.template shared<G>(sums_of_team);  // [count, at_once, tile]
    const std::int64_t block = index / tiles;
    const std::int64_t first_column = index % tiles * tile;
    const std::int64_t last = rows * (block + 1) / blocks;
    team.each(Team::threads, [&](int thread) {
      const int in_tile = thread % lanes * pack<T>;
      const std::int64_t column = first_column + in_tile;
      const int slot = thread / lanes;
      Sums first{};
      [[maybe_unused]] Sums second{};
      if (column < columns) {
        std::int64_t row = rows * block / blocks + slot;
        for (; row + 3 * at_once < last; row += 4 * at_once) {
          const std::int64_t at = row * columns + column;
          const auto a = terms.fetch(at, row);
          const auto b = terms.fetch(at + at_once * columns, row + at_once);
          const auto c = terms.fetch(at + 2 * at_once * columns, row + 2 * at_once);
          const auto d = terms.fetch(at + 3 * at_once * columns, row + 3 * at_once);
          add(a, first, second);
          add(b, first, second);
          add(c, first, second);
          add(d, first, second);
        }
        for (; row < last; row += at_once)
          add(terms.fetch(row * columns + column, row), first, second);
      }
      GARONNE_UNROLLED
      for (int i = 0; i < pack<T>; ++i) {
        parts[slot * tile + in_tile + i] = first[i];
        if constexpr (count == 2) parts[(at_once + slot) * tile + in_tile + i] = second[i];
      }
    });
    team.wait();
    team.each(count * tile, [&](int i) {
      const std::int64_t column = first_column + i % tile;
      if (column >= columns) return;
      const int which = i / tile;
      const G* const own = parts + which * at_once * tile + i % tile;
      G total = own[0];
      for (int slot = 1; slot < at_once; ++slot) total += own[slot * tile];
      sums[(count * block + which) * columns + column] = total;
    });
  }
};

template <int count, typename T, typename Space, typename Terms>
void sum_packed_column_blocks(const Space& space, const Terms& terms, Accumulation<T>* sums,
                              std::int64_t blocks, std::int64_t rows, std::int64_t columns) {
  using Kernel = PackedColumnBlockSums<count, T, Terms>;
  const std::int64_t tiles = (columns + Kernel::tile - 1) / Kernel::tile;
  for_teams<Kernel::groups>(space, blocks * tiles,
                            shared_bytes<Accumulation<T>>(Kernel::sums_of_team),
                            Kernel{terms, sums, blocks, rows, columns, tiles});
}

}  // namespace garonne::kernels::device
