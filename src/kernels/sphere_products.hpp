// What is before and after the products of matrices that spherical harmonic transforms are made of
// on devices that multiply much faster than they add up. Of grids with an even number of
// longitudes.
//
// On a circle cosines and sines of even, and of odd, orders are those on its first quarter but for
// signs, so a field is folded: of up to four points the four sums with those signs, and of a row
// and its mirror the sum and the difference. Fourier sums are a quarter of what they were; Legendre
// sums are over half of the rows, in rectangles of which the degrees of an order fill half on
// average. A column is a channel of a batch entry; numbers are of the transform's type.
//
//   folded    [part][parity][mirrored][northern rows][quarter][columns]
//   spectrum  [parity][mirrored][northern rows][half orders][part][columns]
//   series    [parity][mirrored][half orders][half degrees][part][columns]
//   waves     [part][parity][half orders][quarter]
//   functions [parity][mirrored][half orders][half degrees][northern rows]
//
// with part 0 of cosines and real parts, 1 of sines and imaginary parts; parity of the order; 0 of
// mirrored for sums and even degree - order, 1 for differences and odd ones. Analysis is spectrum =
// waves · folded, series = functions · spectrum; synthesis has the transposed matrices.
#pragma once

#include "kernels/sphere_transform.hpp"

namespace garonne::kernels {

constexpr bool is_sphere_folded(const SphereShape& shape) {
  return shape.longitudes % 2 == 0;
}

struct SphereProductSizes {
  explicit constexpr SphereProductSizes(const SphereShape& shape)
      : northern_rows(shape.northern_rows()),
        quarter(shape.longitudes / 4 + 1),
        half_orders((shape.orders + 1) / 2),
        half_degrees((shape.degrees + 1) / 2) {}

  constexpr std::int64_t folded(std::int64_t columns) const {
    return 8 * northern_rows * quarter * columns;
  }
  constexpr std::int64_t spectrum(std::int64_t columns) const {
    return 8 * northern_rows * half_orders * columns;
  }
  constexpr std::int64_t series(std::int64_t columns) const {
    return 8 * half_orders * half_degrees * columns;
  }
  constexpr std::int64_t waves() const { return 4 * half_orders * quarter; }
  constexpr std::int64_t functions() const {
    return 4 * half_orders * half_degrees * northern_rows;
  }

  std::int64_t northern_rows;
  std::int64_t quarter;
  std::int64_t half_orders;
  std::int64_t half_degrees;
};

// Fills `functions` and `waves` of `type` (Float32 or Float64), computed in float64, as
// fill_sphere_table does.
void fill_sphere_product_tables(ElementType type, const SphereShape& shape,
                                std::span<const double> cosines, void* functions, void* waves);

// Columns [first, first + count) of batch · channels, column entry · channels + channel.
struct SphereColumns {
  ElementType field_type = ElementType::Float32;  // of the grid; others are of its sums' type
  SphereShape shape;
  SphereFactors factors;  // as of sphere_analysis and sphere_synthesis
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// [batch, latitudes, longitudes, channels] -> folded, with the factors of rows.
void sphere_fold(const Queue& queue, const SphereColumns& columns, const void* grid, void* folded);
// folded -> [batch, latitudes, longitudes, channels], with the factors of rows.
void sphere_unfold(const Queue& queue, const SphereColumns& columns, const void* folded,
                   void* grid);

// series -> coefficients [rows, batch, channels, 2], with the factors of orders.
void sphere_coefficients(const Queue& queue, const SphereColumns& columns, const void* series,
                         void* coefficients);
// coefficients -> series with the factors of orders, paired ones twice; 0 where there is no such
// degree or order.
void sphere_series(const Queue& queue, const SphereColumns& columns, const void* coefficients,
                   void* series);

}  // namespace garonne::kernels
