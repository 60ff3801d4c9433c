// Instance norm of fields with channels last: each channel of each sample to mean 0 and deviation 1
// over its points, then a gain and a bias a channel.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"
#include "kernels/point_run.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels {

// Of both directions.
std::int64_t instance_norm_workspace_bytes(std::int64_t batch, std::int64_t points,
                                           std::int64_t channels);

// Statistics are added up in double, in blocks of points that do not depend on threads.
// 1 / sqrt(variance + epsilon) with the variance over all points (no correction).
void instance_norm_forward(const Queue& queue, ElementType type,
                           const void* x,     // T [batch, points, channels]
                           const void* gain,  // T [channels]
                           const void* bias,  // T [channels]
                           double epsilon,
                           void* y,                  // T [batch, points, channels], not x
                           void* mean,               // G [batch, channels]
                           void* inverse_deviation,  // G [batch, channels]
                           void* workspace, std::int64_t batch, std::int64_t points,
                           std::int64_t channels);

// gradient_x may be gradient_y. The parameters' gradients are of G.
void instance_norm_backward(const Queue& queue, ElementType type, const void* gradient_y,
                            const void* x, const void* gain, const void* mean,
                            const void* inverse_deviation, void* gradient_x, void* gradient_gain,
                            void* gradient_bias, bool accumulate_parameters, void* workspace,
                            std::int64_t batch, std::int64_t points, std::int64_t channels);

// The same norm in parts, for statistics that come from elsewhere too
// (kernels/instance_moments.hpp). Workspaces as above.

// Over the points of `runs` of each sample: the mean of each channel, and the sum of the squares of
// what is beside it; 0 where there is no point.
void instance_norm_moments(const Queue& queue, ElementType type,
                           const void* x,  // T [batch, points, channels]
                           std::span<const PointRun> runs,
                           double* moments,  // [2, batch, channels]: means, then squares
                           void* workspace, std::int64_t batch, std::int64_t points,
                           std::int64_t channels);

// y = (x - mean) · inverse deviation · gain + bias; y is not x.
void instance_norm_apply(const Queue& queue, ElementType type, const void* x, const void* gain,
                         const void* bias, const void* mean, const void* inverse_deviation, void* y,
                         std::int64_t batch, std::int64_t points, std::int64_t channels);

// The gradient with mean and deviation held fast, and sums over the points of each sample of the
// gradient of y and of its product with the normalised x. gradient_x may be gradient_y.
void instance_norm_apply_backward(const Queue& queue, ElementType type, const void* gradient_y,
                                  const void* x, const void* gain, const void* mean,
                                  const void* inverse_deviation, void* gradient_x,
                                  double* sums,  // [batch, 2, channels]
                                  void* workspace, std::int64_t batch, std::int64_t points,
                                  std::int64_t channels);

}  // namespace garonne::kernels
