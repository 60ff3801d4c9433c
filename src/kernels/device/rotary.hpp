// kernels/rotary.hpp on a device, with the bits of a CPU that contracts nothing.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"
#include "kernels/rotary.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// `table` is in the device's memory.
void rotate_heads(const Place& place, ElementType type, const void* x, const float* table, void* y,
                  const RotaryHeads& heads, bool back, std::int64_t rows, std::int64_t sequence);

}  // namespace garonne::kernels::device
