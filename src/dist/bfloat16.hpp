// bfloat16 numbers as sums take them, on the host and on a device. For the room's own use.
#pragma once

#include <bit>
#include <cstdint>

// One source for the device and, in tests, for the host.
#ifdef __CUDACC__
#define GARONNE_ON_DEVICE __host__ __device__
#else
#define GARONNE_ON_DEVICE
#endif

namespace garonne::dist {

struct BFloat16 {
  std::uint16_t bits;
};

GARONNE_ON_DEVICE inline float widened(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// To nearest, ties to even. A NaN would be rounded to infinity or to zero of the other sign, so it
// is replaced.
GARONNE_ON_DEVICE inline BFloat16 narrowed(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return {static_cast<std::uint16_t>(is_nan ? 0x7FC0U : rounded)};
}

}  // namespace garonne::dist
