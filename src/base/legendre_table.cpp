#include "base/legendre_table.hpp"

#include <cmath>
#include <numbers>
#include <string>

#include "base/error.hpp"

namespace garonne {
namespace {

// A value is mantissa · 2^(-step_bits · steps).
constexpr int step_bits = 800;

struct Scaled {
  double mantissa;
  int steps;
};

// P̄_m^m = sqrt(1/4π · Π_{j=1..m} (2j+1)/2j) sin^m θ
Scaled diagonal(std::int64_t order, double squared_sine) {
  if (squared_sine == 0 && order > 0) return {0, 0};
  const double small = std::ldexp(1.0, -step_bits / 2);
  Scaled value{0.5 * std::numbers::inv_sqrtpi, 0};
  for (std::int64_t j = 1; j <= order; ++j) {
    const auto twice = static_cast<double>(2 * j);
    value.mantissa *= std::sqrt((twice + 1) / twice * squared_sine);
    if (value.mantissa < small) {
      value.mantissa = std::ldexp(value.mantissa, step_bits);
      ++value.steps;
    }
  }
  return value;
}

double times_root(std::int64_t a, std::int64_t b, double value) {
  return std::sqrt(static_cast<double>(a) * static_cast<double>(b)) * value;
}

}  // namespace

void fill_legendre_order(std::int64_t order, std::int64_t degrees, std::span<const double> cosines,
                         double* out) {
  expect(order >= 0 && order < degrees, "fill_legendre_order: an order at or above the degrees");
  const auto rows = static_cast<std::size_t>(degrees - order);
  const std::size_t points = cosines.size();
  std::vector<double> a(rows);
  std::vector<double> b(rows);
  for (std::size_t i = 1; i < rows; ++i) {
    const auto l = static_cast<double>(order + static_cast<std::int64_t>(i));
    const auto m = static_cast<double>(order);
    const double inverse = (2 * l + 1) / ((l - m) * (l + m));
    a[i] = std::sqrt((2 * l - 1) * inverse);
    // The factor (l - m - 1) makes the term before the first vanish.
    b[i] = i == 1 ? 0 : std::sqrt((l + m - 1) * (l - m - 1) * inverse / (2 * l - 3));
  }
  const double big = std::ldexp(1.0, step_bits / 2);
  for (std::size_t k = 0; k < points; ++k) {
    const double x = cosines[k];
    Scaled now = diagonal(order, (1 - x) * (1 + x));
    double before = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      if (i > 0) {
        const double next = a[i] * x * now.mantissa - b[i] * before;
        before = now.mantissa;
        now.mantissa = next;
        if (now.steps > 0 && std::abs(next) > big) {
          now.mantissa = std::ldexp(now.mantissa, -step_bits);
          before = std::ldexp(before, -step_bits);
          --now.steps;
        }
      }
      out[i * points + k] = now.steps == 0   ? now.mantissa
                            : now.steps == 1 ? std::ldexp(now.mantissa, -step_bits)
                                             : 0.0;
    }
  }
}

LegendreTable make_legendre_table(std::int64_t degrees, std::int64_t orders,
                                  std::span<const double> cosines) {
  if (orders < 1 || orders > degrees) {
    throw ConfigError("spherical harmonics of " + std::to_string(orders) + " orders and " +
                      std::to_string(degrees) + " degrees: 1 <= orders <= degrees is needed");
  }
  LegendreTable table{degrees, orders, static_cast<std::int64_t>(cosines.size()), {}};
  table.values.resize(
      static_cast<std::size_t>((table.row(degrees - 1, orders - 1) + 1) * table.points));
  for (std::int64_t order = 0; order < orders; ++order) {
    fill_legendre_order(order, degrees, cosines, table.at(order, order).data());
  }
  return table;
}

VectorLegendreTable make_vector_legendre_table(std::int64_t degrees, std::int64_t orders,
                                               std::span<const double> cosines) {
  // One order more: each is made of those beside it.
  const LegendreTable table = make_legendre_table(degrees, std::min(orders + 1, degrees), cosines);
  LegendreTable zero{degrees, orders, table.points, {}};
  zero.values.resize(
      static_cast<std::size_t>((zero.row(degrees - 1, orders - 1) + 1) * zero.points));
  VectorLegendreTable result{zero, std::move(zero)};
  const auto value = [&](std::int64_t l, std::int64_t m, std::size_t k) {
    if (m > l) return 0.0;
    return table.at(l, m)[k];
  };
  for (std::int64_t m = 0; m < orders; ++m) {
    for (std::int64_t l = m; l < degrees; ++l) {
      const std::span<double> derivative = result.polar_derivative.at(l, m);
      const std::span<double> over_sine = result.order_over_sine.at(l, m);
      const double stretch =
          l == 0 ? 0 : std::sqrt(static_cast<double>(2 * l + 1) / static_cast<double>(2 * l - 1));
      for (std::size_t k = 0; k < static_cast<std::size_t>(table.points); ++k) {
        if (m == 0) {
          derivative[k] = -times_root(l, l + 1, value(l, 1, k));
          continue;
        }
        derivative[k] = 0.5 * (times_root(l + m, l - m + 1, value(l, m - 1, k)) -
                               times_root(l - m, l + m + 1, value(l, m + 1, k)));
        over_sine[k] = 0.5 * stretch *
                       (times_root(l - m, l - m - 1, value(l - 1, m + 1, k)) +
                        times_root(l + m, l + m - 1, value(l - 1, m - 1, k)));
      }
    }
  }
  return result;
}

}  // namespace garonne
