// kernels/instance_moments.hpp on a device; the same bits as on CPUs.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"
#include "kernels/instance_moments.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels::device {

// InternalError where there are more members than a launch takes along: 256.
void gathered_statistics(const Place& place, ElementType type, const GatheredMoments& gathered,
                         void* mean, void* inverse_deviation);

// Likewise.
void gathered_statistics_gradient(const Place& place, const GatheredMoments& gathered,
                                  const double* sums, const double* gain, double* gradient);

void instance_parameter_gradients(const Place& place, ElementType type, const double* sums,
                                  void* gradient_gain, bool accumulate_gain, void* gradient_bias,
                                  bool accumulate_bias, std::int64_t batch, std::int64_t channels);

// Needs no workspace. InternalError for more than RunList::most runs.
void instance_moments_gradient(const Place& place, ElementType type, const void* x,
                               std::span<const PointRun> runs, const double* moments,
                               const double* gradient_moments, void* gradient_x, std::int64_t batch,
                               std::int64_t points, std::int64_t channels);

}  // namespace garonne::kernels::device
