// Division of indices; private to this room.
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace garonne::kernels::device {

// Of numbers that are not negative; in 32 bits where they have no more, which takes a fifth.
KOKKOS_INLINE_FUNCTION std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

}  // namespace garonne::kernels::device
