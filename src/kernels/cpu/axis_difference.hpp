// Differences along an axis as loops; private to this room.
#pragma once

#include "kernels/field_loss.hpp"

#include <algorithm>
#include <cstdint>

namespace garonne::kernels {

// visit(row, column, factor) for the nonzero elements of the matrix D of differences.
template <typename Visit>
void for_difference_terms(const AxisDifference& axis, const Visit& visit) {
  const auto step = static_cast<double>(axis.count);  // one over the spacing
  for (std::int64_t b = 0; b < axis.before; ++b) {
    for (std::int64_t n = 0; n < axis.count; ++n) {
      const std::int64_t line = (b * axis.count + n) * axis.after;
      const auto term = [&](std::int64_t other, double factor) {
        const std::int64_t from = (b * axis.count + other) * axis.after;
        for (std::int64_t a = 0; a < axis.after; ++a) visit(line + a, from + a, factor * step);
      };
      if (axis.periodic || (n > 0 && n + 1 < axis.count)) {
        term((n + 1) % axis.count, 0.5);
        term((n + axis.count - 1) % axis.count, -0.5);
        continue;
      }
      const std::int64_t inwards = n == 0 ? 1 : -1;
      const double sign = n == 0 ? 1.0 / 6 : -1.0 / 6;
      term(n, -11 * sign);
      term(n + inwards, 18 * sign);
      term(n + 2 * inwards, -9 * sign);
      term(n + 3 * inwards, 2 * sign);
    }
  }
}

// out = D · field
inline void apply_difference(const AxisDifference& axis, const double* field, double* out) {
  std::fill(out, out + axis.before * axis.count * axis.after, 0.0);
  for_difference_terms(axis, [&](std::int64_t row, std::int64_t column, double factor) {
    out[row] += factor * field[column];
  });
}

// out += Dᵀ · field
inline void add_transposed_difference(const AxisDifference& axis, const double* field,
                                      double* out) {
  for_difference_terms(axis, [&](std::int64_t row, std::int64_t column, double factor) {
    out[column] += factor * field[row];
  });
}

// Makes 0 what out = D · field has from points that are not there.
template <typename There>
void clear_incomplete(const AxisDifference& axis, const There& there, double* out) {
  for_difference_terms(axis, [&](std::int64_t row, std::int64_t column, double) {
    if (!there(column)) out[row] = 0;
  });
}

}  // namespace garonne::kernels
