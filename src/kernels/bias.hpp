// The bias of a linear layer: added to every row, and its gradient, the sum over rows.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// y += bias, in every row.
void add_bias(const Queue& queue, ElementType type,
              void* y,           // T [rows, n]
              const void* bias,  // T [n]
              std::int64_t rows, std::int64_t n);

// gradient_bias = (or +=) the sum over rows of gradient_y, added in an order that depends on `rows`
// only.
void bias_gradient(const Queue& queue, ElementType type,
                   const void* gradient_y,  // T [rows, n]
                   void* gradient_bias,     // G [n]
                   bool accumulate, std::int64_t rows, std::int64_t n);

}  // namespace garonne::kernels
