// Instance norm of fields with channels last: each channel of each sample to mean 0 and deviation 1
// over its points, then a gain and a bias a channel.
#pragma once

#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// Of both directions.
std::int64_t instance_norm_workspace_bytes(std::int64_t batch, std::int64_t points,
                                           std::int64_t channels);

// Statistics are added up in double, in blocks of points that do not depend on threads.
// 1 / sqrt(variance + epsilon) with the variance over all points (no correction).
void instance_norm_forward(ElementType type,
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
void instance_norm_backward(ElementType type, const void* gradient_y, const void* x,
                            const void* gain, const void* mean, const void* inverse_deviation,
                            void* gradient_x, void* gradient_gain, void* gradient_bias,
                            bool accumulate_parameters, void* workspace, std::int64_t batch,
                            std::int64_t points, std::int64_t channels);

}  // namespace garonne::kernels
