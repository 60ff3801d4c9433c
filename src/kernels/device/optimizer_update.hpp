// kernels/optimizer_update.hpp on a device; the same bits as on CPUs.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"
#include "kernels/optimizer_update.hpp"

#include <cstdint>

namespace garonne::kernels::device {

void adamw_update(const Place& place, ElementType type, void* parameter, void* first_moment,
                  void* second_moment, const void* gradient, std::int64_t n, const AdamW& options,
                  const Scalar& gradient_scale, void* bfloat16_copy);

}  // namespace garonne::kernels::device
