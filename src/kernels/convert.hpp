// Conversions between the compute type and the accumulation type.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// Rounds to nearest, ties to even; NaN stays NaN.
void to_bfloat16(const Queue& queue, const float* source, void* destination /* bfloat16 [n] */,
                 std::int64_t n);

// destination = (or +=) source.
void accumulate_from(const Queue& queue, ElementType type,
                     const void* source,  // T [n]
                     void* destination,   // G [n]
                     std::int64_t n, bool accumulate);

}  // namespace garonne::kernels
