// kernels/initialise.hpp on a device; the same bits as on CPUs.
#pragma once

#include "base/philox.hpp"
#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

void fill_normal(const Place& place, ElementType type, void* values, std::int64_t n, PhiloxKey key,
                 double deviation, std::int64_t first_element, std::uint64_t step,
                 std::uint64_t sample, const std::uint64_t* step_place = nullptr,
                 const std::int64_t* sample_place = nullptr);

}  // namespace garonne::kernels::device
