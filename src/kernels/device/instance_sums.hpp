// Two sums over the points of a sample for each channel, in blocks; private to this room.
#pragma once

#include "kernels/device/column_block_sums.hpp"
#include "kernels/element.hpp"
#include "kernels/point_blocks.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// Of x - the first point, and of its square: the first point stands in for the mean.
template <typename T>
struct StatisticsOf {
  const T* x;      // [points, channels]
  const T* first;  // [channels]

  KOKKOS_FUNCTION void add(std::int64_t at, std::int64_t, std::int64_t channel, double& sum,
                           double& second) const {
    const double value =
        static_cast<double>(load(x[at])) - static_cast<double>(load(first[channel]));
    sum += value;
    second += value * value;
  }
};

// Of the gradient, and of its product with the normalised x.
template <typename T>
struct ProductsOf {
  const T* x;
  const T* gradient_y;
  const Accumulation<T>* mean;
  const Accumulation<T>* inverse_deviation;

  KOKKOS_FUNCTION void add(std::int64_t at, std::int64_t, std::int64_t channel, double& sum,
                           double& second) const {
    using G = Accumulation<T>;
    const G normal = (load(x[at]) - mean[channel]) * inverse_deviation[channel];
    const G value = load(gradient_y[at]);
    sum += static_cast<double>(value);
    second += static_cast<double>(value * normal);
  }
};

// sums [blocks, 2, channels] of `points` points; returns the number of blocks.
template <typename Space, typename Terms>
std::int64_t sum_blocks(const Space& space, const Terms& terms, double* sums, std::int64_t points,
                        std::int64_t channels) {
  const std::int64_t blocks = point_blocks(points);
  sum_column_blocks<2, double>(space, terms, sums, blocks, points, channels);
  return blocks;
}

// The blocks of number i of [2, channels], added in their order.
KOKKOS_INLINE_FUNCTION double sum_of_blocks(const double* sums, std::int64_t blocks,
                                            std::int64_t width, std::int64_t i) {
  double total = sums[i];
  for (std::int64_t block = 1; block < blocks; ++block) total += sums[block * width + i];
  return total;
}

}  // namespace garonne::kernels::device
