// kernels/reduction.hpp on a device.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// Elements of a block of add_sum_of_squares: a function of n, so that there are at most
// scratch_doubles of them.
constexpr std::int64_t squares_block(std::int64_t n) {
  constexpr std::int64_t least = 8192;
  return ((n - 1) / (least * scratch_doubles) + 1) * least;
}

// Not in the order of CPUs, which is too long for a GPU, but in one that depends on n only: teams
// of 256 threads have a block each (Team::sum), one team adds up the blocks. The sums are of
// float64. Uses the scratch of the place.
void add_sum_of_squares(const Place& place, ElementType type, const void* values, std::int64_t n,
                        double* total);

// The same bits as on CPUs.
void add_into(const Place& place, ElementType type, void* destination, const void* source,
              std::int64_t n);

}  // namespace garonne::kernels::device
