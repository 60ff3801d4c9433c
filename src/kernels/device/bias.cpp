#include "kernels/device/bias.hpp"

#include "kernels/device/column_sum.hpp"
#include "kernels/device/elementwise.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

// A team has some packs of columns, in as many rows as make it worth starting.
template <typename T>
struct AddBias {
  static constexpr int width = pack<T>;
  static constexpr std::int64_t rows_of_team = 16;

  T* y;
  const T* bias;
  std::int64_t rows;
  std::int64_t n;
  std::int64_t tiles;  // of a row

  template <int count>
  KOKKOS_FUNCTION static void put(T* place, const Fetched<T, count>& fetched,
                                  const Values<Accumulation<T>, count>& added) {
    Values<Accumulation<T>, count> values;
    unpack<count>(fetched, values);
    for (int i = 0; i < count; ++i) values[i] = values[i] + added[i];
    write<count>(place, values);
  }

  template <int count>
  KOKKOS_FUNCTION void add(std::int64_t first, std::int64_t end, std::int64_t column) const {
    using G = Accumulation<T>;
    Values<G, count> added;
    read<count>(bias + column, added);
    T* place = y + first * n + column;
    std::int64_t row = first;
    constexpr int at_once = 4;
    for (; row + at_once <= end; row += at_once, place += at_once * n) {
      Fetched<T, count> fetched[at_once];
      GARONNE_UNROLLED
      for (int i = 0; i < at_once; ++i) fetched[i] = fetch<count>(place + i * n);
      GARONNE_UNROLLED
      for (int i = 0; i < at_once; ++i) put(place + i * n, fetched[i], added);
    }
    for (; row < end; ++row, place += n) put(place, fetch<count>(place), added);
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t first = index / tiles * rows_of_team;
    const std::int64_t end = Kokkos::min(rows, first + rows_of_team);
    const std::int64_t first_column = index % tiles * Team::threads * width;
    team.each(Team::threads, [&](int thread) {
      const std::int64_t column = first_column + thread * width;
      if (column + width <= n) {
        add<width>(first, end, column);
      } else {
        for (std::int64_t j = column; j < n; ++j) add<1>(first, end, j);
      }
    });
  }
};

}  // namespace

void add_bias(const Place& place, ElementType type, void* y, const void* bias, std::int64_t rows,
              std::int64_t n) {
  if (rows <= 0 || n <= 0) return;
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    constexpr int groups = 4;
    const std::int64_t columns = groups * lanes_of_group * AddBias<T>::width;
    const std::int64_t tiles = (n + columns - 1) / columns;
    const std::int64_t blocks = (rows + AddBias<T>::rows_of_team - 1) / AddBias<T>::rows_of_team;
    for_teams<groups>(space, blocks * tiles, 0,
                      AddBias<T>{static_cast<T*>(y), static_cast<const T*>(bias), rows, n, tiles});
  });
}

void bias_gradient(const Place& place, ElementType type, const void* gradient_y,
                   void* gradient_bias, bool accumulate, std::int64_t rows, std::int64_t n) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    sum_columns(space, place, static_cast<const T*>(gradient_y),
                static_cast<Accumulation<T>*>(gradient_bias), accumulate, rows, n, n);
  });
}

}  // namespace garonne::kernels::device
