// Two sums over the points of a sample for each channel, in blocks; private to this room.
#pragma once

#include "kernels/device/team.hpp"
#include "kernels/element.hpp"
#include "kernels/point_blocks.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// Of x - the first point, and of its square: the first point stands in for the mean.
template <typename T>
struct StatisticsOf {
  const T* x;      // [points, channels]
  const T* first;  // [channels]

  KOKKOS_FUNCTION void add(std::int64_t at, std::int64_t channel, double& sum,
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

  KOKKOS_FUNCTION void add(std::int64_t at, std::int64_t channel, double& sum,
                           double& second) const {
    using G = Accumulation<T>;
    const G normal = (load(x[at]) - mean[channel]) * inverse_deviation[channel];
    const G value = load(gradient_y[at]);
    sum += static_cast<double>(value);
    second += static_cast<double>(value * normal);
  }
};

// A team has 32 channels of a block; its groups take the points in turn.
template <typename Terms>
struct BlockSums {
  static constexpr int groups = 8;

  Terms terms;
  double* sums;  // [blocks, 2, channels]
  std::int64_t blocks;
  std::int64_t points;
  std::int64_t channels;
  std::int64_t tiles;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    double* const parts = team.template shared<double>(2 * Team::threads);
    const std::int64_t block = index / tiles;
    const std::int64_t first_channel = index % tiles * lanes_of_group;
    const std::int64_t last = points * (block + 1) / blocks;
    team.each(Team::threads, [&](int thread) {
      const std::int64_t channel = first_channel + thread % lanes_of_group;
      double sum = 0;
      double second = 0;
      if (channel < channels) {
        for (std::int64_t p = points * block / blocks + thread / lanes_of_group; p < last;
             p += Team::groups)
          terms.add(p * channels + channel, channel, sum, second);
      }
      parts[thread] = sum;
      parts[Team::threads + thread] = second;
    });
    team.wait();
    team.each(2 * lanes_of_group, [&](int i) {
      const std::int64_t channel = first_channel + i % lanes_of_group;
      if (channel >= channels) return;
      const int which = i / lanes_of_group;
      const double* const own = parts + which * Team::threads + i % lanes_of_group;
      double total = own[0];
      for (int group = 1; group < Team::groups; ++group) total += own[group * lanes_of_group];
      sums[(2 * block + which) * channels + channel] = total;
    });
  }
};

// sums [blocks, 2, channels] of `points` points; returns the number of blocks.
template <typename Space, typename Terms>
std::int64_t sum_blocks(const Space& space, const Terms& terms, double* sums, std::int64_t points,
                        std::int64_t channels) {
  using Kernel = BlockSums<Terms>;
  const std::int64_t blocks = point_blocks(points);
  const std::int64_t tiles = (channels + lanes_of_group - 1) / lanes_of_group;
  for_teams<Kernel::groups>(space, blocks * tiles,
                            shared_bytes<double>(2 * Kernel::groups * lanes_of_group),
                            Kernel{terms, sums, blocks, points, channels, tiles});
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
