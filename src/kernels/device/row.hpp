// Rows that a team goes along; private to this room.
#pragma once

#include "kernels/device/elementwise.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// Calls visit.at<count>(first) for what one thread has of `columns`: the packs thread, thread +
// threads, …, and the last ones singly. A function of the columns alone, not of addresses.
template <typename T, typename Team, typename Visit>
KOKKOS_FUNCTION void for_own_columns(int thread, std::int64_t columns, Visit& visit) {
  constexpr int width = pack<T>;
  for (std::int64_t first = std::int64_t{thread} * width; first < columns;
       first += std::int64_t{Team::threads} * width) {
    if (first + width <= columns) {
      visit.template at<width>(first);
    } else {
      for (std::int64_t j = first; j < columns; ++j) visit.template at<1>(j);
    }
  }
}

// The same, but that visit.pack(first, fetched) is given packs, of which some are read at once.
template <typename T, typename Team, typename Visit>
KOKKOS_FUNCTION void for_own_packs(int thread, const T* row, std::int64_t columns, Visit& visit) {
  constexpr int width = pack<T>;
  constexpr std::int64_t step = std::int64_t{Team::threads} * width;
  constexpr int at_once = 4;
  std::int64_t first = std::int64_t{thread} * width;
  for (; first + (at_once - 1) * step + width <= columns; first += at_once * step) {
    Fetched<T, width> fetched[at_once];
    GARONNE_UNROLLED
    for (int i = 0; i < at_once; ++i) fetched[i] = fetch<width>(row + first + i * step);
    GARONNE_UNROLLED
    for (int i = 0; i < at_once; ++i) visit.template pack<width>(first + i * step, fetched[i]);
  }
  for (; first < columns; first += step) {
    if (first + width <= columns) {
      visit.template pack<width>(first, fetch<width>(row + first));
    } else {
      for (std::int64_t j = first; j < columns; ++j) visit.template pack<1>(j, fetch<1>(row + j));
    }
  }
}

// for_own_columns for all threads of the team.
template <typename T, typename Team, typename Visit>
KOKKOS_FUNCTION void for_columns(const Team& team, std::int64_t columns, const Visit& visit) {
  team.each(Team::threads, [&](int thread) { for_own_columns<T, Team>(thread, columns, visit); });
}

// Sum, over the team's threads, of what `visit` has in `total` after its own columns. `sums` is
// shared, [groups].
template <typename T, typename G, typename Team, typename Visit>
KOKKOS_FUNCTION G sum_of_columns(const Team& team, G* sums, std::int64_t columns,
                                 const Visit& visit) {
  return team.template sum<G>(sums, [&](int thread) {
    Visit own = visit;
    for_own_columns<T, Team>(thread, columns, own);
    return own.total;
  });
}

}  // namespace garonne::kernels::device
