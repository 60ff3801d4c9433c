// kernels/bias.hpp on a device; the same bits as on CPUs.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

void add_bias(const Place& place, ElementType type, void* y, const void* bias, std::int64_t rows,
              std::int64_t n);

// Uses the scratch of the place.
void bias_gradient(const Place& place, ElementType type, const void* gradient_y,
                   void* gradient_bias, bool accumulate, std::int64_t rows, std::int64_t n);

}  // namespace garonne::kernels::device
