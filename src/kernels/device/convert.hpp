// kernels/convert.hpp on a device; the same bits as on CPUs.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

void to_bfloat16(const Place& place, const float* source, void* destination, std::int64_t n);

void accumulate_from(const Place& place, ElementType type, const void* source, void* destination,
                     std::int64_t n, bool accumulate);

}  // namespace garonne::kernels::device
