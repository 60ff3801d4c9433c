// Sums over rows; private to this room.
#pragma once

#include "kernels/device/elementwise.hpp"

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

// `stride` from row to row of `source` [rows, columns].
template <typename T, typename Space>
void sum_columns(const Space& space, const T* source, Accumulation<T>* destination, bool accumulate,
                 std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  // Of few columns a tile is what memory hands over at least, 32 bytes of a row, so that more
  // multiprocessors have one; of many, twice that.
  constexpr std::int64_t few = 64 * lanes_of_group;
  const auto put = [&]<int width>(std::integral_constant<int, width>, int lanes) {
    using Kernel = ColumnSum<T, width>;
    const std::int64_t tile = std::int64_t{lanes} * width;
    for_teams<Kernel::groups>(
        space, (columns + tile - 1) / tile, Kernel::scratch_bytes,
        Kernel{source, destination, accumulate, rows, columns, stride, lanes});
  };
  if (columns % pack<T> == 0 && stride % pack<T> == 0 && has_packs(source)) {
    put(std::integral_constant<int, pack<T>>(), columns < few ? 2 : 4);
  } else {
    put(std::integral_constant<int, 1>(),
        columns < few ? static_cast<int>(32 / sizeof(T)) : lanes_of_group);
  }
}

}  // namespace garonne::kernels::device
