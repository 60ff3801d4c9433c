// The statistics of instance norm where a field is cut: every member has the moments of its own
// points (instance_norm_moments), here they are put together, and the chain rule through both.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"
#include "kernels/point_run.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels {

struct GatheredMoments {
  const double* moments = nullptr;        // [members, 2, batch, channels]: means, then squares
  std::span<const std::int64_t> counted;  // by member: of how many points
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  double epsilon = 0;
};

// Mean and 1 / sqrt(variance + epsilon) over the points of all members, added up in their order as
// by Chan, Golub and LeVeque, "Updating formulae" (1979).
void gathered_statistics(const Queue& queue, ElementType type, const GatheredMoments& gathered,
                         void* mean,                // G [batch, channels]
                         void* inverse_deviation);  // G [batch, channels]

// The chain rule through gathered_statistics, from the sums of instance_norm_apply_backward.
void gathered_statistics_gradient(const Queue& queue, const GatheredMoments& gathered,
                                  const double* sums,  // [batch, 2, channels]
                                  const double* gain,  // [channels]
                                  double* gradient);   // [members, 2, batch, channels]

// Gradients of gain and bias: those sums, added up over samples in their order.
void instance_parameter_gradients(const Queue& queue, ElementType type,
                                  const double* sums,   // [batch, 2, channels]
                                  void* gradient_gain,  // G [channels]
                                  bool accumulate_gain,
                                  void* gradient_bias,  // G [channels]
                                  bool accumulate_bias, std::int64_t batch, std::int64_t channels);

// Of instance_moments_gradient; G and T as there.
struct InstanceMomentsWorkspace {
  void* mean = nullptr;      // G [batch, channels]
  void* factor = nullptr;    // G [batch, channels]
  void* constant = nullptr;  // T [batch, channels]
  void* one = nullptr;       // T [channels]
};

// The chain rule through instance_norm_moments: (x - mean) · 2 · gradient of squares + gradient of
// mean / counted points; 0 at points that are in no run.
void instance_moments_gradient(const Queue& queue, ElementType type,
                               const void* x,                   // T [batch, points, channels]
                               std::span<const PointRun> runs,  // in the order of points
                               const double* moments,           // [2, batch, channels]
                               const double* gradient_moments,  // [2, batch, channels]
                               void* gradient_x,                // T [batch, points, channels]
                               const InstanceMomentsWorkspace& workspace, std::int64_t batch,
                               std::int64_t points, std::int64_t channels);

}  // namespace garonne::kernels
