// RMS norm over the last axis (Zhang and Sennrich 2019): y = x * inverse * gain, with inverse =
// 1 / sqrt(mean of x^2 + epsilon).
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// The mean of squares is computed in G. `inverse` may be null. y may be x.
void rms_norm_forward(const Queue& queue, ElementType type,
                      const void* x,     // T [rows, hidden]
                      const void* gain,  // T [hidden]
                      double epsilon,
                      void* y,        // T [rows, hidden]
                      void* inverse,  // G [rows] or null
                      std::int64_t rows, std::int64_t hidden);

// Bytes of rms_norm_backward's workspace: a function of the arguments and of nothing else.
std::int64_t rms_norm_workspace_bytes(ElementType type, std::int64_t rows, std::int64_t hidden);

// The gain's gradient is added up in row partitions that depend on `rows` only, and the partitions
// in order: bits do not depend on the threads. gradient_x may be gradient_y (without accumulate_x),
// no other overlap. gradient_x may be null (gain only), and so may gradient_gain (input only; the
// workspace is then not used and may be null).
void rms_norm_backward(const Queue& queue, ElementType type,
                       const void* gradient_y,  // T [rows, hidden]
                       const void* x,           // T [rows, hidden]
                       const void* gain,        // T [hidden]
                       const void* inverse,     // G [rows], from the forward
                       void* gradient_x,        // T [rows, hidden] or null
                       bool accumulate_x,       // gradient_x += instead of =
                       void* gradient_gain,     // G [hidden] or null
                       bool accumulate_gain,    // += instead of =
                       void* workspace,         // rms_norm_workspace_bytes, aligned to 64 bytes
                       std::int64_t rows, std::int64_t hidden);

}  // namespace garonne::kernels
