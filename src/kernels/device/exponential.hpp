// The exponential of device kernels; private to this room.
#pragma once

#include "kernels/element.hpp"

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

// 2^x, of numbers that are rounded to bfloat16 afterwards: within 2^-21 of it, 0 below 2^-126.
KOKKOS_INLINE_FUNCTION float power_of_two_roughly(float x) {
#ifdef __CUDA_ARCH__
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return Kokkos::exp2(x);
#endif
}

inline constexpr double log2_of_e = 1.4426950408889634074;

// a / b for b >= 1, and e^x as above, as they are wanted for results in T.
template <typename T>
struct Rounded {
  template <typename G>
  KOKKOS_FUNCTION static G quotient(G a, G b) {
    return a / b;
  }
  template <typename G>
  KOKKOS_FUNCTION static G exponential(G x) {
    return device::exponential(x);
  }
};

template <>
struct Rounded<BFloat16> {
  KOKKOS_FUNCTION static float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fdividef(a, b);
#else
    return a / b;
#endif
  }
  KOKKOS_FUNCTION static float exponential(float x) {
    // Beyond, the quotient above would be none.
    x = x > 80.0F ? 80.0F : x;
    return power_of_two_roughly(x * static_cast<float>(log2_of_e));
  }
};

}  // namespace garonne::kernels::device
