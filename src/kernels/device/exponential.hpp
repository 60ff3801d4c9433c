// The exponential of device kernels; private to this room.
#pragma once

#include <Kokkos_Core.hpp>

namespace garonne::kernels::device {

// e^x for -87.3 <= x <= 88 and constant outside, as on CPUs: nothing overflows in what it is used
// for. NaN stays NaN.
KOKKOS_INLINE_FUNCTION float exponential(float x) {
  x = x > 88.0F ? 88.0F : x;
  x = x < -87.3F ? -87.3F : x;
  return Kokkos::exp(x);
}

KOKKOS_INLINE_FUNCTION double exponential(double x) {
  x = x > 709.0 ? 709.0 : x;
  return Kokkos::exp(x);
}

}  // namespace garonne::kernels::device
