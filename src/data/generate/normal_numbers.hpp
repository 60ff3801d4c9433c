// Normally distributed numbers for generated data: a function of key, step, sample and element, so
// that neither ranks nor the order of work matter.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

#include "base/philox.hpp"

namespace garonne::data {

// Two independent N(0, 1), by Box and Muller from one block of Philox: numbers 2 · pair and
// 2 · pair + 1 of this key, step and sample.
inline std::pair<double, double> normal_pair(PhiloxKey key, std::uint64_t step,
                                             std::uint64_t sample, std::uint64_t pair) {
  const PhiloxBlock block = philox_at(key, step, sample, pair);
  const auto uniform = [](std::uint32_t high, std::uint32_t low) {
    // 53 bits; the half keeps it off 0.
    const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
    return (static_cast<double>(bits) + 0.5) * 0x1p-53;
  };
  const double radius = std::sqrt(-2.0 * std::log(uniform(block.word[0], block.word[1])));
  const double angle = 2.0 * std::numbers::pi * uniform(block.word[2], block.word[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace garonne::data
