#include "kernels/sphere_products.hpp"

#include "base/error.hpp"
#include "base/legendre_table.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/sphere_products.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/sphere_columns.hpp"
#include "kernels/with_type.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace garonne::kernels {

namespace {

void check(const SphereColumns& columns) {
  const SphereShape& shape = columns.shape;
  const bool fits = shape.latitudes >= 2 && shape.orders >= 1 && shape.orders <= shape.degrees &&
                    shape.orders <= shape.longitudes / 2 + 1 && is_sphere_folded(shape);
  expect(fits, "spherical harmonics that cannot be folded");
  expect(columns.first >= 0 && columns.count >= 1 &&
             columns.first + columns.count <= columns.batch * columns.channels,
         "columns that a field does not have");
}

template <typename T>
void fill_functions(const SphereShape& shape, const LegendreTable& table, T* out) {
  const SphereProductSizes sizes(shape);
  const bool has_equator = shape.latitudes % 2 == 1;
  for (std::int64_t index = 0; index < sizes.functions() / sizes.northern_rows; ++index) {
    const SeriesPlace place(shape, sizes, index);
    T* const row = out + index * sizes.northern_rows;
    std::fill_n(row, sizes.northern_rows, T{0});
    if (!place.exists) continue;
    const std::span<const double> values = table.at(place.degree, place.order);
    std::transform(values.begin(), values.end(), row,
                   [](double value) { return static_cast<T>(value); });
    // The equator is its own mirror.
    if (has_equator && (place.degree - place.order) % 2 == 1) row[sizes.northern_rows - 1] = T{0};
  }
}

// Cosines, and sines with the sign that the transform's exponent gives them.
template <typename T>
void fill_waves(const SphereShape& shape, T* out) {
  const SphereProductSizes sizes(shape);
  for (const int part : {0, 1}) {
    for (const int parity : {0, 1}) {
      for (std::int64_t i = 0; i < sizes.half_orders; ++i) {
        const std::int64_t order = 2 * i + parity;
        for (std::int64_t w = 0; w < sizes.quarter; ++w, ++out) {
          const std::int64_t turn = order * w % shape.longitudes;
          const double angle = 2 * std::numbers::pi * static_cast<double>(turn) /
                               static_cast<double>(shape.longitudes);
          const bool vanishes =
              order >= shape.orders || (part == 1 && 2 * turn % shape.longitudes == 0);
          *out = vanishes ? T{0} : static_cast<T>(part == 0 ? std::cos(angle) : -std::sin(angle));
        }
      }
    }
  }
}

// A northern row and a place of the quarter.
struct FoldedPlace {
  FoldedPlace(const SphereColumns& columns_, std::int64_t index_)
      : columns(columns_),
        sizes(columns.shape),
        index(index_),
        row(index / sizes.quarter),
        mirror(columns.shape.latitudes - 1 - row),
        circle(columns.shape.longitudes, index % sizes.quarter) {}

  bool equator() const { return mirror == row; }
  std::int64_t in_grid(std::int64_t column, std::int64_t latitude, int point) const {
    const std::int64_t entry = (columns.first + column) / columns.channels;
    const std::int64_t channel = (columns.first + column) % columns.channels;
    return ((entry * columns.shape.latitudes + latitude) * columns.shape.longitudes +
            circle.place[point]) *
               columns.channels +
           channel;
  }
  std::int64_t in_folded(std::int64_t column, int part, int parity, int mirrored) const {
    return folded_block(sizes, part, parity, mirrored, columns.count) + index * columns.count +
           column;
  }

  const SphereColumns& columns;
  SphereProductSizes sizes;
  std::int64_t index;
  std::int64_t row;
  std::int64_t mirror;
  CirclePoints circle;
};

template <typename T>
void fold(const FoldedPlace& place, const T* grid, Accumulation<T>* out) {
  using G = Accumulation<T>;
  const G factor = static_cast<G>(factor_of_row(place.columns, place.row));
  for (std::int64_t column = 0; column < place.columns.count; ++column) {
    G sums[4] = {};
    G differences[4] = {};
    for (int point = 0; point < 4; ++point) {
      if (!place.circle.has(point)) continue;
      const G north = load(grid[place.in_grid(column, place.row, point)]);
      const G south = load(grid[place.in_grid(column, place.mirror, point)]);
      sums[point] = place.equator() ? north : north + south;
      if (!place.equator()) differences[point] = north - south;
    }
    for (const int part : {0, 1}) {
      for (const int parity : {0, 1}) {
        out[place.in_folded(column, part, parity, 0)] = folded_circle(sums, part, parity) * factor;
        out[place.in_folded(column, part, parity, 1)] =
            folded_circle(differences, part, parity) * factor;
      }
    }
  }
}

template <typename T>
void unfold(const FoldedPlace& place, const Accumulation<T>* folded, T* grid) {
  using G = Accumulation<T>;
  const G factor = static_cast<G>(factor_of_row(place.columns, place.row));
  for (std::int64_t column = 0; column < place.columns.count; ++column) {
    for (const bool north : {true, false}) {
      if (!north && place.equator()) continue;
      G sums[2][2];
      for (const int part : {0, 1}) {
        for (const int parity : {0, 1}) {
          const G even = folded[place.in_folded(column, part, parity, 0)];
          const G odd = place.equator() ? G{0} : folded[place.in_folded(column, part, parity, 1)];
          sums[part][parity] = north ? even + odd : even - odd;
        }
      }
      for (int point = 0; point < 4; ++point) {
        if (!place.circle.has(point)) continue;
        store(grid[place.in_grid(column, north ? place.row : place.mirror, point)],
              unfolded_circle(sums, point) * factor);
      }
    }
  }
}

template <typename Use>
void for_folded_places(const Queue& queue, const SphereColumns& columns, const Use& use) {
  const SphereProductSizes sizes(columns.shape);
  for_ranges(queue, sizes.northern_rows * sizes.quarter, row_grain(8 * columns.count), 1,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t index = begin; index < end; ++index)
                 use(FoldedPlace(columns, index));
             });
}

// use(place, index) for each pair of a series.
template <typename Use>
void for_series(const Queue& queue, const SphereColumns& columns, const Use& use) {
  const SphereProductSizes sizes(columns.shape);
  for_ranges(queue, 4 * sizes.half_orders * sizes.half_degrees, row_grain(2 * columns.count), 1,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t index = begin; index < end; ++index)
                 use(SeriesPlace(columns.shape, sizes, index), index);
             });
}

// First number of the columns of a place among the coefficients.
std::int64_t first_coefficient(const SphereColumns& columns, const SeriesPlace& place) {
  const std::int64_t row = columns.shape.first_row(place.degree) + place.order;
  return 2 * (row * columns.batch * columns.channels + columns.first);
}

template <typename Use>
void with_wide_type(ElementType field_type, const Use& use) {
  if (field_type == ElementType::Float64) return use(double{});
  use(float{});
}

}  // namespace

void fill_sphere_product_tables(ElementType type, const SphereShape& shape,
                                std::span<const double> cosines, void* functions, void* waves) {
  expect(is_sphere_folded(shape), "spherical harmonics that cannot be folded");
  const std::span<const double> north =
      cosines.subspan(0, static_cast<std::size_t>(shape.northern_rows()));
  const LegendreTable table = make_legendre_table(shape.degrees, shape.orders, north);
  with_wide_type(type, [&]<typename T>(T) {
    fill_functions(shape, table, static_cast<T*>(functions));
    fill_waves(shape, static_cast<T*>(waves));
  });
}

void sphere_fold(const Queue& queue, const SphereColumns& columns, const void* grid, void* folded) {
  const auto on_device = [&](const auto& place) {
    check(columns);
    device::sphere_fold(place, columns, grid, folded);
  };
  if (put_on_device(queue, on_device)) return;
  check(columns);
  with_type(columns.field_type, [&]<typename T>(T) {
    for_folded_places(queue, columns, [&](const FoldedPlace& place) {
      fold(place, static_cast<const T*>(grid), static_cast<Accumulation<T>*>(folded));
    });
  });
}

void sphere_unfold(const Queue& queue, const SphereColumns& columns, const void* folded,
                   void* grid) {
  const auto on_device = [&](const auto& place) {
    check(columns);
    device::sphere_unfold(place, columns, folded, grid);
  };
  if (put_on_device(queue, on_device)) return;
  check(columns);
  with_type(columns.field_type, [&]<typename T>(T) {
    for_folded_places(queue, columns, [&](const FoldedPlace& place) {
      unfold(place, static_cast<const Accumulation<T>*>(folded), static_cast<T*>(grid));
    });
  });
}

void sphere_coefficients(const Queue& queue, const SphereColumns& columns, const void* series,
                         void* coefficients) {
  const auto on_device = [&](const auto& place) {
    check(columns);
    device::sphere_coefficients(place, columns, series, coefficients);
  };
  if (put_on_device(queue, on_device)) return;
  check(columns);
  with_wide_type(columns.field_type, [&]<typename T>(T) {
    for_series(queue, columns, [&](const SeriesPlace& place, std::int64_t index) {
      if (!place.exists) return;
      const T factor = static_cast<T>(factor_of_order(columns, place));
      const T* const pair = static_cast<const T*>(series) + 2 * index * columns.count;
      T* const out = static_cast<T*>(coefficients) + first_coefficient(columns, place);
      for (std::int64_t column = 0; column < columns.count; ++column) {
        out[2 * column] = pair[column] * factor;
        out[2 * column + 1] = pair[columns.count + column] * factor;
      }
    });
  });
}

void sphere_series(const Queue& queue, const SphereColumns& columns, const void* coefficients,
                   void* series) {
  const auto on_device = [&](const auto& place) {
    check(columns);
    device::sphere_series(place, columns, coefficients, series);
  };
  if (put_on_device(queue, on_device)) return;
  check(columns);
  with_wide_type(columns.field_type, [&]<typename T>(T) {
    for_series(queue, columns, [&](const SeriesPlace& place, std::int64_t index) {
      T* const pair = static_cast<T*>(series) + 2 * index * columns.count;
      if (!place.exists) {
        std::fill_n(pair, 2 * columns.count, T{0});
        return;
      }
      const T factor = static_cast<T>(factor_of_order(columns, place) * (place.alone ? 1 : 2));
      const T of_imaginary = place.alone ? T{0} : factor;
      const T* const from = static_cast<const T*>(coefficients) + first_coefficient(columns, place);
      for (std::int64_t column = 0; column < columns.count; ++column) {
        pair[column] = from[2 * column] * factor;
        pair[columns.count + column] = from[2 * column + 1] * of_imaginary;
      }
    });
  });
}

}  // namespace garonne::kernels
