// kernels/swiglu.hpp on a device. The exponential is the device's, so the last bits are not the
// CPU's.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

void swiglu_forward(const Place& place, ElementType type, const void* x, void* y, std::int64_t rows,
                    std::int64_t inner);

void swiglu_backward(const Place& place, ElementType type, const void* gradient_y, const void* x,
                     void* gradient_x, std::int64_t rows, std::int64_t inner);

}  // namespace garonne::kernels::device
