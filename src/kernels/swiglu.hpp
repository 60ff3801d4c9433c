// The gated unit SwiGLU (Shazeer 2020): y = silu(gate) * up, with silu(g) = g / (1 + exp(-g)). A
// row has its gates first, then as many ups.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

void swiglu_forward(const Queue& queue, ElementType type,
                    const void* x,  // T [rows, 2, inner]
                    void* y,        // T [rows, inner]
                    std::int64_t rows, std::int64_t inner);

// gradient_x may be x.
void swiglu_backward(const Queue& queue, ElementType type,
                     const void* gradient_y,  // T [rows, inner]
                     const void* x,           // T [rows, 2, inner]
                     void* gradient_x,        // T [rows, 2, inner]
                     std::int64_t rows, std::int64_t inner);

}  // namespace garonne::kernels
