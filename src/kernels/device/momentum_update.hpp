// kernels/momentum_update.hpp on a device; the same bits as on CPUs.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"
#include "kernels/momentum_update.hpp"

#include <cstdint>

namespace garonne::kernels::device {

void momentum_update(const Place& place, ElementType type, void* parameter, void* moment,
                     const void* gradient, std::int64_t n, const Momentum& options,
                     const Scalar& learning_rate, const Scalar& gradient_scale,
                     void* bfloat16_copy);

}  // namespace garonne::kernels::device
