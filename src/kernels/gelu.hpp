// GELU in its tanh form (GPT-2's): y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// y may be x.
void gelu_forward(const Queue& queue, ElementType type,
                  const void* x,  // T [n]
                  void* y,        // T [n]
                  std::int64_t n);

// gradient_x may be gradient_y or x.
void gelu_backward(const Queue& queue, ElementType type,
                   const void* gradient_y,  // T [n]
                   const void* x,           // T [n]
                   void* gradient_x,        // T [n]
                   std::int64_t n);

}  // namespace garonne::kernels
