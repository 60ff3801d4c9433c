// Associated Legendre functions in the normalisation of spherical harmonics, and what the transform
// of vectors needs of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace garonne {

// P̄_l^m(x) = sqrt((2l+1)/4π · (l-m)!/(l+m)!) P_l^m(x) >= 0 near x = 1, without the
// Condon-Shortley sign (-1)^m: P̄_l^m(cos θ) exp(imλ) has norm 1 on the unit sphere.
//
// Fills out [degrees - order, points] with P̄_l^order for l = order … degrees - 1 at each
// x = cosines[i] in [-1, 1]. The recurrence over l at fixed order (Holmes and Featherstone 2002)
// in float64, with an exponent of its own, so that high orders next to the poles do not vanish
// before they grow.
void fill_legendre_order(std::int64_t order, std::int64_t degrees, std::span<const double> cosines,
                         double* out);

// Place of (degree, order) among all with order <= degree < degrees, order by order.
inline std::int64_t legendre_row(std::int64_t degrees, std::int64_t degree, std::int64_t order) {
  return order * degrees - order * (order - 1) / 2 + degree - order;
}

// Functions of all orders m < orders and degrees m <= l < degrees at some points, packed: those
// with l < m, all zero, are not there.
struct LegendreTable {
  std::int64_t degrees = 0;
  std::int64_t orders = 0;
  std::int64_t points = 0;
  std::vector<double> values;  // [order][degree - order][point]

  // Row of (degree, order) among all rows; order <= degree.
  std::int64_t row(std::int64_t degree, std::int64_t order) const {
    return legendre_row(degrees, degree, order);
  }
  // [points]
  std::span<const double> at(std::int64_t degree, std::int64_t order) const {
    return {values.data() + row(degree, order) * points, static_cast<std::size_t>(points)};
  }
  std::span<double> at(std::int64_t degree, std::int64_t order) {
    return {values.data() + row(degree, order) * points, static_cast<std::size_t>(points)};
  }
};

// Throws ConfigError unless 1 <= orders <= degrees.
LegendreTable make_legendre_table(std::int64_t degrees, std::int64_t orders,
                                  std::span<const double> cosines);

// dP̄_l^m/dθ and m P̄_l^m / sin θ. Both are sums of neighbours in the table, with no division by
// sin θ, and so are exact at the poles too.
struct VectorLegendreTable {
  LegendreTable polar_derivative;
  LegendreTable order_over_sine;
};
VectorLegendreTable make_vector_legendre_table(std::int64_t degrees, std::int64_t orders,
                                               std::span<const double> cosines);

}  // namespace garonne
