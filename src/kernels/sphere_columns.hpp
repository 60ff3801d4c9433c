// The arithmetic of one place of kernels/sphere_products.hpp, for the loops of all devices; private
// to this room.
#pragma once

#include "kernels/element.hpp"
#include "kernels/sphere_products.hpp"

#include <cstdint>

namespace garonne::kernels {

// The places of a quarter on its circle: w, its mirrors at 0 and at a quarter, and both; those that
// are met twice are there once.
struct CirclePoints {
  GARONNE_INLINE CirclePoints(std::int64_t longitudes, std::int64_t w)
      : place{w, longitudes - w, longitudes / 2 - w, longitudes / 2 + w},
        has_negative(w != 0),
        has_opposite(4 * w != longitudes) {}

  GARONNE_INLINE bool has(int point) const {
    return (point % 2 == 0 || has_negative) && (point < 2 || has_opposite);
  }

  std::int64_t place[4];
  bool has_negative;
  bool has_opposite;
};

// What a part and parity add up of the four points, those that are not there as 0.
template <typename G>
GARONNE_INLINE G folded_circle(const G (&points)[4], int part, int parity) {
  const G near = part == 0 ? points[0] + points[1] : points[0] - points[1];
  const G far = part == 0 ? points[2] + points[3] : points[3] - points[2];
  return parity == 0 ? near + far : near - far;
}

// The value at one of the points of what was folded, [part][parity].
template <typename G>
GARONNE_INLINE G unfolded_circle(const G (&sums)[2][2], int point) {
  const G cosines = point < 2 ? sums[0][0] + sums[0][1] : sums[0][0] - sums[0][1];
  const G sines = point < 2 ? sums[1][0] + sums[1][1] : sums[1][1] - sums[1][0];
  return point % 2 == 0 ? cosines + sines : cosines - sines;
}

// Where the folded number of a row and a place of the quarter is among those of one part, parity
// and mirroring.
GARONNE_INLINE std::int64_t folded_block(const SphereProductSizes& sizes, int part, int parity,
                                         int mirrored, std::int64_t count) {
  return ((part * 2 + parity) * 2 + mirrored) * sizes.northern_rows * sizes.quarter * count;
}

// One pair of numbers of a series.
struct SeriesPlace {
  // Number `index` of [parity][mirrored][half orders][half degrees].
  GARONNE_INLINE SeriesPlace(const SphereShape& shape, const SphereProductSizes& sizes,
                             std::int64_t index) {
    const std::int64_t d = index % sizes.half_degrees;
    const std::int64_t matrix = index / sizes.half_degrees;
    const std::int64_t i = matrix % sizes.half_orders;
    const std::int64_t block = matrix / sizes.half_orders;
    order = 2 * i + block / 2;
    degree = order + block % 2 + 2 * d;
    exists = order < shape.orders && degree < shape.degrees;
    alone = order == 0 || 2 * order == shape.longitudes;
  }

  std::int64_t order;
  std::int64_t degree;
  bool exists;
  bool alone;  // has no conjugate twin
};

GARONNE_INLINE double factor_of_row(const SphereColumns& columns, std::int64_t row) {
  return columns.factors.rows == nullptr ? 1 : columns.factors.rows[row];
}

GARONNE_INLINE double factor_of_order(const SphereColumns& columns, const SeriesPlace& place) {
  return place.alone ? columns.factors.single : columns.factors.paired;
}

}  // namespace garonne::kernels
