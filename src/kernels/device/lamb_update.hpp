// kernels/lamb_update.hpp on a device.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"
#include "kernels/lamb_update.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// The same bits as on CPUs, by the same squares.
void lamb_update(const Place& place, ElementType type, void* parameter, void* first_moment,
                 void* second_moment, const void* gradient, std::int64_t n, const Lamb& options,
                 const Scalar& gradient_scale, void* bfloat16_copy);

// Of the same directions as on CPUs, in the order of device/reduction.hpp but that each thread has
// every 256th element of a block. Uses the scratch of the place.
void add_lamb_squares(const Place& place, ElementType type, const void* parameter,
                      const void* first_moment, const void* second_moment, const void* gradient,
                      std::int64_t n, const Lamb& options, const Scalar& gradient_scale,
                      double* total);

}  // namespace garonne::kernels::device
