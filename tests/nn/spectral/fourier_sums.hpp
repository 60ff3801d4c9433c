// Fourier sums as they are written down: over all points for every mode. Slow and obvious.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <numbers>
#include <numeric>
#include <vector>

namespace garonne::test {

using Points = std::vector<std::int64_t>;

inline std::int64_t count_of(const Points& points) {
  return std::accumulate(points.begin(), points.end(), std::int64_t{1}, std::multiplies<>());
}

// Every index, the last axis fastest: of axis a one of `axes[a]`.
inline std::vector<Points> all_of(const std::vector<Points>& axes) {
  std::vector<Points> indices = {{}};
  for (const Points& axis : axes) {
    std::vector<Points> longer;
    for (const Points& index : indices) {
      for (const std::int64_t k : axis) {
        longer.push_back(index);
        longer.back().push_back(k);
      }
    }
    indices = std::move(longer);
  }
  return indices;
}

inline Points from_to(std::int64_t first, std::int64_t last) {
  Points numbers;
  for (std::int64_t k = first; k <= last; ++k) numbers.push_back(k);
  return numbers;
}

// exp(-2πi k · n / points) of every mode k and point n.
inline at::Tensor waves(const std::vector<Points>& modes, const Points& points) {
  std::vector<Points> axes;
  for (const std::int64_t count : points) axes.push_back(from_to(0, count - 1));
  const std::vector<Points> places = all_of(axes);
  at::Tensor angles =
      at::zeros({static_cast<std::int64_t>(modes.size()), static_cast<std::int64_t>(places.size())},
                at::kDouble);
  auto angle = angles.accessor<double, 2>();
  for (std::size_t k = 0; k < modes.size(); ++k) {
    for (std::size_t n = 0; n < places.size(); ++n) {
      double turns = 0;
      for (std::size_t a = 0; a < points.size(); ++a)
        turns += static_cast<double>(modes[k][a] * places[n][a]) / static_cast<double>(points[a]);
      angle[static_cast<std::int64_t>(k)][static_cast<std::int64_t>(n)] =
          -2 * std::numbers::pi * turns;
    }
  }
  return at::polar(at::ones_like(angles), angles);
}

// Of a field [batch, points, channels].
inline at::Tensor spectrum_of(const at::Tensor& x, const at::Tensor& waves_of_points) {
  return at::einsum("kp,bpc->bkc", {waves_of_points, x.to(at::kComplexDouble)}) /
         static_cast<double>(x.size(1));
}
inline at::Tensor field_of(const at::Tensor& spectrum, const at::Tensor& waves_of_points) {
  return at::real(at::einsum("kp,bkc->bpc", {waves_of_points.conj(), spectrum}));
}

// All modes that both grids tell apart, each of a pair k and -k on its own.
inline at::Tensor on_other_grid(const at::Tensor& x, const Points& points, const Points& others) {
  std::vector<Points> axes;
  for (std::size_t a = 0; a < points.size(); ++a) {
    std::int64_t highest = 0;
    while (2 * (highest + 1) < points[a] && 2 * (highest + 1) < others[a]) ++highest;
    axes.push_back(from_to(-highest, highest));
  }
  const std::vector<Points> modes = all_of(axes);
  return field_of(spectrum_of(x, waves(modes, points)), waves(modes, others));
}

}  // namespace garonne::test
