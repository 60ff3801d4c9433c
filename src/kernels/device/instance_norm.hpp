// kernels/instance_norm.hpp on a device. Blocks of points are the CPU's; within a block thread
// groups take points in turn and are added in order, in float64.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"
#include "kernels/point_run.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels::device {

void instance_norm_forward(const Place& place, ElementType type, const void* x, const void* gain,
                           const void* bias, double epsilon, void* y, void* mean,
                           void* inverse_deviation, void* workspace, std::int64_t batch,
                           std::int64_t points, std::int64_t channels);

void instance_norm_backward(const Place& place, ElementType type, const void* gradient_y,
                            const void* x, const void* gain, const void* mean,
                            const void* inverse_deviation, void* gradient_x, void* gradient_gain,
                            void* gradient_bias, bool accumulate_parameters, void* workspace,
                            std::int64_t batch, std::int64_t points, std::int64_t channels);

void instance_norm_moments(const Place& place, ElementType type, const void* x,
                           std::span<const PointRun> runs, double* moments, void* workspace,
                           std::int64_t batch, std::int64_t points, std::int64_t channels);

void instance_norm_apply(const Place& place, ElementType type, const void* x, const void* gain,
                         const void* bias, const void* mean, const void* inverse_deviation, void* y,
                         std::int64_t batch, std::int64_t points, std::int64_t channels);

void instance_norm_apply_backward(const Place& place, ElementType type, const void* gradient_y,
                                  const void* x, const void* gain, const void* mean,
                                  const void* inverse_deviation, void* gradient_x, double* sums,
                                  void* workspace, std::int64_t batch, std::int64_t points,
                                  std::int64_t channels);

}  // namespace garonne::kernels::device
