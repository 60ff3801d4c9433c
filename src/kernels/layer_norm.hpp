// Layer norm over the last axis: y = (x - mean) * inverse_deviation * gain + bias, with
// inverse_deviation = 1 / sqrt(variance + epsilon) and the biased variance.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// Statistics are computed in G, the variance around the mean. `mean` and `inverse_deviation` may be
// null. y may be x.
void layer_norm_forward(const Queue& queue, ElementType type,
                        const void* x,     // T [rows, hidden]
                        const void* gain,  // T [hidden]
                        const void* bias,  // T [hidden]
                        double epsilon,
                        void* y,                  // T [rows, hidden]
                        void* mean,               // G [rows] or null
                        void* inverse_deviation,  // G [rows] or null
                        std::int64_t rows, std::int64_t hidden);

// Bytes of layer_norm_backward's workspace: a function of the arguments and of nothing else.
std::int64_t layer_norm_workspace_bytes(ElementType type, std::int64_t rows, std::int64_t hidden);

// Parameter gradients are added up in row partitions that depend on `rows` only, and the partitions
// in order: bits do not depend on the threads. gradient_x may be gradient_y (without accumulate_x),
// no other overlap. gradient_x may be null (parameters only), and so may gradient_gain and
// gradient_bias together (input only; the workspace is then not used and may be null).
void layer_norm_backward(const Queue& queue, ElementType type,
                         const void* gradient_y,         // T [rows, hidden]
                         const void* x,                  // T [rows, hidden]
                         const void* gain,               // T [hidden]
                         const void* mean,               // G [rows], from the forward
                         const void* inverse_deviation,  // G [rows], from the forward
                         void* gradient_x,               // T [rows, hidden] or null
                         bool accumulate_x,              // gradient_x += instead of =
                         void* gradient_gain,            // G [hidden] or null
                         void* gradient_bias,            // G [hidden] or null
                         bool accumulate_parameters,     // both += instead of =
                         void* workspace,  // layer_norm_workspace_bytes, aligned to 64 bytes
                         std::int64_t rows, std::int64_t hidden);

}  // namespace garonne::kernels
