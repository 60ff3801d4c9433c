// Elements in inner loops; private to this room. Everything here is always inlined: the inner loops
// are compiled for several instruction sets, and no copy of a shared function may come out of any
// of them.
#pragma once

#include "base/philox.hpp"

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define GARONNE_INLINE __host__ __device__ __forceinline__
#else
#define GARONNE_INLINE [[gnu::always_inline]] inline
#endif
// The same for a lambda, between its parameters and its body.
#define GARONNE_INLINE_LAMBDA __attribute__((always_inline))

namespace garonne::kernels {

struct BFloat16 {
  std::uint16_t bits;
};

template <typename T>
struct AccumulationOf {
  using Type = T;
};
template <>
struct AccumulationOf<BFloat16> {
  using Type = float;
};
template <typename T>
using Accumulation = typename AccumulationOf<T>::Type;

GARONNE_INLINE float load(float value) {
  return value;
}
GARONNE_INLINE double load(double value) {
  return value;
}
GARONNE_INLINE float load(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

GARONNE_INLINE void store(float& place, float value) {
  place = value;
}
GARONNE_INLINE void store(float& place, double value) {
  place = static_cast<float>(value);
}
GARONNE_INLINE void store(double& place, double value) {
  place = value;
}
// To nearest, ties to even. NaN would be rounded to infinity or to zero of the other sign, so it is
// replaced.
GARONNE_INLINE void store(BFloat16& place, float value) {
#ifdef __CUDA_ARCH__
  // The device's own instruction, whose NaN is another.
  std::uint16_t bits = 0;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  place.bits = value != value ? std::uint16_t{0x7FC0} : bits;
#else
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  place.bits = static_cast<std::uint16_t>(is_nan ? 0x7FC0U : rounded);
#endif
}

}  // namespace garonne::kernels
