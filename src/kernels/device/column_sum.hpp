// Sums over rows; private to this room.
#pragma once

#include "kernels/device/elementwise.hpp"
#include "kernels/device/place.hpp"
#include "kernels/device/quotient.hpp"

#include <cstdint>
#include <type_traits>

namespace garonne::kernels::device {

// destination[column] = (or +=) the sum over rows, in the order of the CPU's loop: four rows at a
// time as (a + b) + (c + d), blocks of 64 rows, and the blocks in their order. A team has a tile of
// columns, `width` of them a thread, in as many blocks as it has threads for.
template <typename T, int width>
struct ColumnSum {
  using G = Accumulation<T>;
  using Sums = Values<G, width>;

  const T* source;  // [rows, columns], rows `stride` elements apart
  G* destination;
  bool accumulate;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
  int lanes;  // threads of a row of the tile, which those of a team are a multiple of

  static constexpr int groups = 32;
  static constexpr int most_lanes = lanes_of_group;
  static constexpr std::int64_t block_rows = 64;
  static constexpr int scratch_bytes =
      shared_bytes<G>((groups * lanes_of_group + most_lanes) * width);

  KOKKOS_FUNCTION Fetched<T, width> fetched(const T* place) const {
    if constexpr (width == 1) {
      return fetch<1>(place);
    } else {
      return fetch_packs<width>(place);
    }
  }

  // Of four rows at a time as (a + b) + (c + d).
  KOKKOS_FUNCTION void block_sum(std::int64_t block, std::int64_t column, Sums& sums) const {
    const std::int64_t end = Kokkos::min(rows, (block + 1) * block_rows);
    std::int64_t row = block * block_rows;
    const T* at = source + row * stride + column;
    for (; row + 4 <= end; row += 4, at += 4 * stride) {
      const auto first = fetched(at);
      const auto second = fetched(at + stride);
      const auto third = fetched(at + 2 * stride);
      const auto fourth = fetched(at + 3 * stride);
      GARONNE_UNROLLED
      for (int i = 0; i < width; ++i) {
        sums[i] = sums[i] + ((load(first.elements[i]) + load(second.elements[i])) +
                             (load(third.elements[i]) + load(fourth.elements[i])));
      }
    }
    for (; row < end; ++row, at += stride) {
      const auto last = fetched(at);
      GARONNE_UNROLLED
      for (int i = 0; i < width; ++i) sums[i] = sums[i] + load(last.elements[i]);
    }
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t tile) const {
    const int tile_columns = lanes * width;
    G* const sums = team.template shared<G>((groups * lanes_of_group + most_lanes) * width);
    G* const totals = sums + Team::threads * width;  // sums: [at_once, tile_columns]
    const std::int64_t first_column = tile * tile_columns;
    const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
    const int at_once = Team::threads / lanes;
    team.each(tile_columns, [&](int column) { totals[column] = 0; });
    for (std::int64_t first = 0; first < blocks; first += at_once) {
      team.each(Team::threads, [&](int thread) {
        const std::int64_t block = first + thread / lanes;
        const std::int64_t column = first_column + thread % lanes * width;
        if (block >= blocks || column >= columns) return;
        Sums own{};
        block_sum(block, column, own);
        GARONNE_UNROLLED
        for (int i = 0; i < width; ++i) sums[thread * width + i] = own[i];
      });
      team.wait();
      team.each(tile_columns, [&](int column) {
        if (first_column + column >= columns) return;
        const std::int64_t count = Kokkos::min<std::int64_t>(at_once, blocks - first);
        G total = totals[column];
        for (int block = 0; block < count; ++block) total += sums[block * tile_columns + column];
        totals[column] = total;
      });
      team.wait();
    }
    team.each(tile_columns, [&](int in_tile) {
      const std::int64_t column = first_column + in_tile;
      if (column >= columns) return;
      destination[column] = accumulate ? destination[column] + totals[in_tile] : totals[in_tile];
    });
  }
};

// The same of few columns and many rows, for which there would be few teams: sums of blocks first,
// a thread each, which then are added in their order.
template <typename T, int width>
struct BlockSums {
  using G = Accumulation<T>;
  static constexpr int groups = 8;

  ColumnSum<T, width> whole;
  G* sums;  // [count, columns]
  std::int64_t first;
  std::int64_t count;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    team.each(Team::threads, [&](int thread) {
      const std::int64_t packs = whole.columns / width;
      const std::int64_t number = index * Team::threads + thread;
      const std::int64_t block = quotient(number, packs);
      if (block >= count) return;
      const std::int64_t column = (number - block * packs) * width;
      typename ColumnSum<T, width>::Sums own{};
      whole.block_sum(first + block, column, own);
      write<width>(sums + block * whole.columns + column, own);
    });
  }
};

// totals[column] = (or +=) sums of blocks in their order; a team has 32 columns.
template <typename G>
struct AddBlockSums {
  static constexpr int groups = 8;
  static constexpr int at_once = 512 / static_cast<int>(sizeof(G));
  static constexpr int scratch_bytes = shared_bytes<G>(at_once * lanes_of_group);

  const G* sums;  // [count, columns]
  G* totals;
  G* destination;  // after the last block, else null
  std::int64_t count;
  std::int64_t columns;
  bool goes_on;  // from totals
  bool accumulate;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t tile) const {
    G* const near = team.template shared<G>(at_once * lanes_of_group);
    const std::int64_t first_column = tile * lanes_of_group;
    team.each(lanes_of_group, [&](int lane) {
      const std::int64_t column = first_column + lane;
      if (column < columns && !goes_on) totals[column] = 0;
    });
    for (std::int64_t first = 0; first < count; first += at_once) {
      const auto here = static_cast<int>(Kokkos::min<std::int64_t>(at_once, count - first));
      team.each(here * lanes_of_group, [&](int i) {
        const std::int64_t column = first_column + i % lanes_of_group;
        if (column < columns) near[i] = sums[(first + i / lanes_of_group) * columns + column];
      });
      team.wait();
      team.each(lanes_of_group, [&](int lane) {
        const std::int64_t column = first_column + lane;
        if (column >= columns) return;
        G total = totals[column];
        for (int block = 0; block < here; ++block) total += near[block * lanes_of_group + lane];
        totals[column] = total;
      });
      team.wait();
    }
    if (destination == nullptr) return;
    team.each(lanes_of_group, [&](int lane) {
      const std::int64_t column = first_column + lane;
      if (column >= columns) return;
      destination[column] = accumulate ? destination[column] + totals[column] : totals[column];
    });
  }
};

// In the scratch of the place.
template <typename T, int width, typename Space>
void sum_blocks(const Space& space, const Place& place, const ColumnSum<T, width>& whole,
                std::int64_t blocks, std::int64_t blocks_at_once) {
  using G = Accumulation<T>;
  using Sums = BlockSums<T, width>;
  using Add = AddBlockSums<G>;
  auto* const totals = reinterpret_cast<G*>(place.scratch);
  auto* const sums = reinterpret_cast<G*>(place.scratch + scratch_doubles);
  const std::int64_t packs = whole.columns / width;
  for (std::int64_t first = 0; first < blocks; first += blocks_at_once) {
    const std::int64_t count = Kokkos::min(blocks_at_once, blocks - first);
    constexpr std::int64_t threads = Sums::groups * lanes_of_group;
    for_teams<Sums::groups>(space, (count * packs + threads - 1) / threads, 0,
                            Sums{whole, sums, first, count});
    for_teams<Add::groups>(space, (whole.columns + lanes_of_group - 1) / lanes_of_group,
                           Add::scratch_bytes,
                           Add{sums, totals, first + count == blocks ? whole.destination : nullptr,
                               count, whole.columns, first > 0, whole.accumulate});
  }
}

// `stride` from row to row of `source` [rows, columns]. Uses the scratch of the place, where it has
// one.
template <typename T, typename Space>
void sum_columns(const Space& space, const Place& place, const T* source,
                 Accumulation<T>* destination, bool accumulate, std::int64_t rows,
                 std::int64_t columns, std::int64_t stride) {
  // Of few columns a tile is what memory hands over at least, 32 bytes of a row, so that more
  // multiprocessors have one; of many, twice that.
  constexpr std::int64_t few = 64 * lanes_of_group;
  // Below so many teams, and from so many blocks on, two kernels are worth their start.
  constexpr std::int64_t few_teams = 64;
  constexpr std::int64_t many_blocks = 64;
  constexpr std::int64_t most_blocks_at_once = 2048;
  const auto put = [&]<int width>(std::integral_constant<int, width>, int lanes) {
    using Kernel = ColumnSum<T, width>;
    const std::int64_t tile = std::int64_t{lanes} * width;
    const std::int64_t teams = (columns + tile - 1) / tile;
    const Kernel whole{source, destination, accumulate, rows, columns, stride, lanes};
    const std::int64_t blocks = (rows + Kernel::block_rows - 1) / Kernel::block_rows;
    const std::int64_t of_doubles = sizeof(double) / sizeof(Accumulation<T>);
    if (place.scratch != nullptr && teams < few_teams && blocks >= many_blocks &&
        columns <= scratch_doubles) {
      const std::int64_t fitting = block_doubles * of_doubles / columns;
      return sum_blocks<T, width>(space, place, whole, blocks,
                                  Kokkos::min(most_blocks_at_once, fitting));
    }
    for_teams<Kernel::groups>(space, teams, Kernel::scratch_bytes, whole);
  };
  if (columns % pack<T> == 0 && stride % pack<T> == 0 && has_packs(source)) {
    put(std::integral_constant<int, pack<T>>(), columns < few ? 2 : 4);
  } else {
    put(std::integral_constant<int, 1>(),
        columns < few ? static_cast<int>(32 / sizeof(T)) : lanes_of_group);
  }
}

}  // namespace garonne::kernels::device
