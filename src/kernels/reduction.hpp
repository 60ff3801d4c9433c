// Sums over and into gradients.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// total += the sum of squares in double, in an order that depends on n only. `type` is Float32 or
// Float64 (InternalError otherwise).
void add_sum_of_squares(const Queue& queue, ElementType type,
                        const void* values,  // type [n]
                        std::int64_t n, double* total);

// destination += source; any type, BFloat16 added in float and rounded.
void add_into(const Queue& queue, ElementType type,
              void* destination,   // type [n]
              const void* source,  // type [n]
              std::int64_t n);

}  // namespace garonne::kernels
