// Rows that a team or a group keeps in registers; private to this room.
#pragma once

#include "kernels/device/elementwise.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// What one of `threads` threads has of a row: the packs thread, thread + threads, … . Rows begin
// where packs do, and are of whole packs.
template <typename T, int threads>
class OwnRow {
 public:
  static constexpr int width = pack<T>;
  static constexpr int packs = 32 / width;
  static constexpr std::int64_t most_columns = std::int64_t{threads} * packs * width;

  KOKKOS_FUNCTION void fetch(const T* row, int columns, int thread) {
    GARONNE_UNROLLED
    for (int i = 0; i < packs; ++i) {
      const int first = first_of(i, thread);
      if (first < columns) packs_[i] = fetch_packs<width>(row + first);
    }
  }

  // f(i, first column) for each pack that there is.
  template <typename F>
  KOKKOS_FUNCTION static void visit(int columns, int thread, const F& f) {
    GARONNE_UNROLLED
    for (int i = 0; i < packs; ++i) {
      const int first = first_of(i, thread);
      if (first < columns) f(i, first);
    }
  }

  // Of pack i.
  KOKKOS_FUNCTION void values(int i, Values<Accumulation<T>, width>& values) const {
    unpack<width>(packs_[i], values);
  }

 private:
  KOKKOS_FUNCTION static int first_of(int i, int thread) { return (i * threads + thread) * width; }

  Fetched<T, width> packs_[static_cast<std::size_t>(packs)];
};

// Whether rows of `columns` elements at these places are of whole packs.
template <typename T, typename... Places>
bool are_packed(std::int64_t columns, const Places*... places) {
  return columns % pack<T> == 0 && (has_packs(places) && ...);
}

// A row a group.
template <typename T, typename Kernel>
struct GroupRows {
  Kernel kernel;
  std::int64_t rows;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    using G = Accumulation<T>;
    team.each_group([&](const Group& group) {
      const std::int64_t row = index * Team::groups + group.index();
      if (row < rows) kernel.of_row(group, static_cast<G*>(nullptr), row);
    });
  }
};

// A row a team.
template <typename T, typename Kernel>
struct TeamRows {
  Kernel kernel;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    kernel.of_row(team, team.template shared<Accumulation<T>>(Team::groups), row);
  }
};

// Puts kernel.of_row(span, sums, row) for each row into the space, where the span, a group or a
// team, has room for a row of `columns` elements of T in its registers; false where none has.
template <typename T, typename Space, typename Kernel>
bool for_own_rows(const Space& space, std::int64_t rows, std::int64_t columns,
                  const Kernel& kernel) {
  constexpr int few_groups = 4;
  constexpr int many_groups = 16;
  if (columns <= OwnRow<T, lanes_of_group>::most_columns) {
    for_teams<few_groups>(space, (rows + few_groups - 1) / few_groups, 0,
                          GroupRows<T, Kernel>{kernel, rows});
  } else if (columns <= OwnRow<T, few_groups * lanes_of_group>::most_columns) {
    for_teams<few_groups>(space, rows, shared_bytes<Accumulation<T>>(few_groups),
                          TeamRows<T, Kernel>{kernel});
  } else if (columns <= OwnRow<T, many_groups * lanes_of_group>::most_columns) {
    for_teams<many_groups>(space, rows, shared_bytes<Accumulation<T>>(many_groups),
                           TeamRows<T, Kernel>{kernel});
  } else {
    return false;
  }
  return true;
}

}  // namespace garonne::kernels::device
