// kernels/dropout.hpp on a device; the same masks and bits as on CPUs.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/dropout.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// Uses the scratch of the place.
void dropout_add(const Place& place, ElementType type, const void* residual, const void* x,
                 void* out, const Dropout& dropout, const std::int64_t* samples,
                 std::int64_t elements, std::int64_t elements_per_sample);

}  // namespace garonne::kernels::device
