#include "kernels/instance_norm.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/instance_norm.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/point_blocks.hpp"

#include <algorithm>
#include <cmath>

namespace garonne::kernels {

namespace {

// Runs the loop over blocks of points and adds the blocks up: sums [2, channels] of one sample.
void add_up(const Queue& queue, const Loop<InstanceSumArguments>& loops_of_type, ElementType type,
            InstanceSumArguments arguments, double* sums) {
  const std::int64_t width = 2 * arguments.channels;
  arguments.blocks = point_blocks(arguments.points);
  arguments.sums = sums + width;
  const auto loop = loops_of_type[type];
  for_ranges(queue, arguments.blocks,
             std::max<std::int64_t>(
                 row_grain(arguments.channels) * arguments.blocks / arguments.points, 1),
             1, [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
  std::copy_n(arguments.sums, width, sums);
  for (std::int64_t block = 1; block < arguments.blocks; ++block) {
    for (std::int64_t j = 0; j < width; ++j) sums[j] += arguments.sums[block * width + j];
  }
}

template <typename G>
void finish_statistics(const double* sums, const double* shift, double points, double epsilon,
                       G* mean, G* inverse, std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const double offset = sums[c] / points;
    const double variance = std::max(0.0, sums[channels + c] / points - offset * offset);
    mean[c] = static_cast<G>(shift[c] + offset);
    inverse[c] = static_cast<G>(1 / std::sqrt(variance + epsilon));
  }
}

template <typename G>
void add_parameters(const double* sums, void* gain, void* bias, bool accumulate,
                    std::int64_t channels) {
  G* const targets[2] = {static_cast<G*>(bias), static_cast<G*>(gain)};
  for (int which = 0; which < 2; ++which) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const G value = static_cast<G>(sums[which * channels + c]);
      targets[which][c] = accumulate ? targets[which][c] + value : value;
    }
  }
}

void moments_of_sample(const Queue& queue, ElementType type, const void* x,
                       std::span<const PointRun> runs, double* mean, double* squares,
                       void* workspace, std::int64_t channels) {
  double* const shift = static_cast<double*>(workspace) + 2 * channels;
  double* const sums = shift + channels;
  std::fill_n(mean, channels, 0.0);
  std::fill_n(squares, channels, 0.0);
  if (runs.empty()) return;
  const auto points_of = [&](const PointRun& run) {
    return static_cast<const char*>(x) + run.first * channels * element_bytes(type);
  };
  InstanceSumArguments statistics{};
  statistics.shift = shift;
  statistics.channels = channels;
  statistics.x = points_of(runs[0]);
  loops().instance_shift[type](statistics, 0, channels);
  std::int64_t points = 0;
  for (const PointRun& run : runs) {
    statistics.x = points_of(run);
    statistics.points = run.count;
    add_up(queue, loops().instance_statistics, type, statistics, sums);
    points += run.count;
    for (std::int64_t c = 0; c < channels; ++c) {
      mean[c] += sums[c];
      squares[c] += sums[channels + c];
    }
  }
  const auto count = static_cast<double>(points);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double offset = mean[c] / count;
    mean[c] = shift[c] + offset;
    squares[c] = std::max(0.0, squares[c] - count * offset * offset);
  }
}

}  // namespace

// Sums of all samples, a shift, sums of one, then of its blocks.
std::int64_t instance_norm_workspace_bytes(std::int64_t, std::int64_t points,
                                           std::int64_t channels) {
  return (2 + 1 + 2 + 2 * point_blocks(points)) * channels * 8;
}

void instance_norm_forward(const Queue& queue, ElementType type, const void* x, const void* gain,
                           const void* bias, double epsilon, void* y, void* mean,
                           void* inverse_deviation, void* workspace, std::int64_t batch,
                           std::int64_t points, std::int64_t channels) {
  const auto on_device = [&](const auto& place) {
    device::instance_norm_forward(place, type, x, gain, bias, epsilon, y, mean, inverse_deviation,
                                  workspace, batch, points, channels);
  };
  if (put_on_device(queue, on_device)) return;
  double* const shift = static_cast<double*>(workspace) + 2 * channels;
  double* const sums = shift + channels;
  const bool is_double = type == ElementType::Float64;
  const std::int64_t sample_bytes = points * channels * element_bytes(type);
  const std::int64_t state_bytes = channels * element_bytes(accumulation_type(type));
  for (std::int64_t entry = 0; entry < batch; ++entry) {
    const void* const sample = static_cast<const char*>(x) + entry * sample_bytes;
    void* const means = static_cast<char*>(mean) + entry * state_bytes;
    void* const inverses = static_cast<char*>(inverse_deviation) + entry * state_bytes;
    InstanceSumArguments statistics{};
    statistics.x = sample;
    statistics.shift = shift;
    statistics.points = points;
    statistics.channels = channels;
    loops().instance_shift[type](statistics, 0, channels);
    add_up(queue, loops().instance_statistics, type, statistics, sums);
    const auto count = static_cast<double>(points);
    if (is_double) {
      finish_statistics(sums, shift, count, epsilon, static_cast<double*>(means),
                        static_cast<double*>(inverses), channels);
    } else {
      finish_statistics(sums, shift, count, epsilon, static_cast<float*>(means),
                        static_cast<float*>(inverses), channels);
    }
    const InstanceApplyArguments apply{
        sample, nullptr,  gain,    bias,
        means,  inverses, nullptr, static_cast<char*>(y) + entry * sample_bytes,
        points, channels};
    const auto loop = loops().instance_forward[type];
    for_ranges(queue, points, row_grain(channels), 1,
               [&](std::int64_t begin, std::int64_t end) { loop(apply, begin, end); });
  }
}

void instance_norm_backward(const Queue& queue, ElementType type, const void* gradient_y,
                            const void* x, const void* gain, const void* mean,
                            const void* inverse_deviation, void* gradient_x, void* gradient_gain,
                            void* gradient_bias, bool accumulate_parameters, void* workspace,
                            std::int64_t batch, std::int64_t points, std::int64_t channels) {
  const auto on_device = [&](const auto& place) {
    device::instance_norm_backward(place, type, gradient_y, x, gain, mean, inverse_deviation,
                                   gradient_x, gradient_gain, gradient_bias, accumulate_parameters,
                                   workspace, batch, points, channels);
  };
  if (put_on_device(queue, on_device)) return;
  double* const all = static_cast<double*>(workspace);
  double* const sums = all + 3 * channels;
  const std::int64_t sample_bytes = points * channels * element_bytes(type);
  const std::int64_t state_bytes = channels * element_bytes(accumulation_type(type));
  std::fill_n(all, 2 * channels, 0.0);
  for (std::int64_t entry = 0; entry < batch; ++entry) {
    const void* const sample = static_cast<const char*>(x) + entry * sample_bytes;
    const void* const gradient = static_cast<const char*>(gradient_y) + entry * sample_bytes;
    const void* const means = static_cast<const char*>(mean) + entry * state_bytes;
    const void* const inverses = static_cast<const char*>(inverse_deviation) + entry * state_bytes;
    InstanceSumArguments products{};
    products.x = sample;
    products.gradient_y = gradient;
    products.mean = means;
    products.inverse_deviation = inverses;
    products.points = points;
    products.channels = channels;
    add_up(queue, loops().instance_products, type, products, sums);
    for (std::int64_t j = 0; j < 2 * channels; ++j) all[j] += sums[j];
    if (gradient_x == nullptr) continue;
    const InstanceApplyArguments apply{
        sample, gradient, gain, nullptr,
        means,  inverses, sums, static_cast<char*>(gradient_x) + entry * sample_bytes,
        points, channels};
    const auto loop = loops().instance_backward[type];
    for_ranges(queue, points, row_grain(channels), 1,
               [&](std::int64_t begin, std::int64_t end) { loop(apply, begin, end); });
  }
  if (type == ElementType::Float64) {
    add_parameters<double>(all, gradient_gain, gradient_bias, accumulate_parameters, channels);
  } else {
    add_parameters<float>(all, gradient_gain, gradient_bias, accumulate_parameters, channels);
  }
}

void instance_norm_moments(const Queue& queue, ElementType type, const void* x,
                           std::span<const PointRun> runs, double* moments, void* workspace,
                           std::int64_t batch, std::int64_t points, std::int64_t channels) {
  const auto on_device = [&](const auto& place) {
    device::instance_norm_moments(place, type, x, runs, moments, workspace, batch, points,
                                  channels);
  };
  if (put_on_device(queue, on_device)) return;
  for (std::int64_t entry = 0; entry < batch; ++entry) {
    moments_of_sample(queue, type,
                      static_cast<const char*>(x) + entry * points * channels * element_bytes(type),
                      runs, moments + entry * channels, moments + (batch + entry) * channels,
                      workspace, channels);
  }
}

void instance_norm_apply(const Queue& queue, ElementType type, const void* x, const void* gain,
                         const void* bias, const void* mean, const void* inverse_deviation, void* y,
                         std::int64_t batch, std::int64_t points, std::int64_t channels) {
  const auto on_device = [&](const auto& place) {
    device::instance_norm_apply(place, type, x, gain, bias, mean, inverse_deviation, y, batch,
                                points, channels);
  };
  if (put_on_device(queue, on_device)) return;
  const std::int64_t sample_bytes = points * channels * element_bytes(type);
  const std::int64_t state_bytes = channels * element_bytes(accumulation_type(type));
  const auto loop = loops().instance_forward[type];
  for (std::int64_t entry = 0; entry < batch; ++entry) {
    const InstanceApplyArguments apply{
        static_cast<const char*>(x) + entry * sample_bytes,
        nullptr,
        gain,
        bias,
        static_cast<const char*>(mean) + entry * state_bytes,
        static_cast<const char*>(inverse_deviation) + entry * state_bytes,
        nullptr,
        static_cast<char*>(y) + entry * sample_bytes,
        points,
        channels};
    for_ranges(queue, points, row_grain(channels), 1,
               [&](std::int64_t begin, std::int64_t end) { loop(apply, begin, end); });
  }
}

void instance_norm_apply_backward(const Queue& queue, ElementType type, const void* gradient_y,
                                  const void* x, const void* gain, const void* mean,
                                  const void* inverse_deviation, void* gradient_x, double* sums,
                                  void* workspace, std::int64_t batch, std::int64_t points,
                                  std::int64_t channels) {
  const auto on_device = [&](const auto& place) {
    device::instance_norm_apply_backward(place, type, gradient_y, x, gain, mean, inverse_deviation,
                                         gradient_x, sums, workspace, batch, points, channels);
  };
  if (put_on_device(queue, on_device)) return;
  double* const none = static_cast<double*>(workspace);
  double* const added = none + 3 * channels;
  const std::int64_t sample_bytes = points * channels * element_bytes(type);
  const std::int64_t state_bytes = channels * element_bytes(accumulation_type(type));
  // The share of the statistics is left out.
  std::fill_n(none, 2 * channels, 0.0);
  for (std::int64_t entry = 0; entry < batch; ++entry) {
    InstanceSumArguments products{};
    products.x = static_cast<const char*>(x) + entry * sample_bytes;
    products.gradient_y = static_cast<const char*>(gradient_y) + entry * sample_bytes;
    products.mean = static_cast<const char*>(mean) + entry * state_bytes;
    products.inverse_deviation = static_cast<const char*>(inverse_deviation) + entry * state_bytes;
    products.points = points;
    products.channels = channels;
    add_up(queue, loops().instance_products, type, products, added);
    std::copy_n(added, 2 * channels, sums + 2 * entry * channels);
    const InstanceApplyArguments apply{
        products.x,    products.gradient_y,
        gain,          nullptr,
        products.mean, products.inverse_deviation,
        none,          static_cast<char*>(gradient_x) + entry * sample_bytes,
        points,        channels};
    const auto loop = loops().instance_backward[type];
    for_ranges(queue, points, row_grain(channels), 1,
               [&](std::int64_t begin, std::int64_t end) { loop(apply, begin, end); });
  }
}

}  // namespace garonne::kernels
