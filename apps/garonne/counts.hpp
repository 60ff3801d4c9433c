// Checks of options that are numbers.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace garonne::apps {

inline constexpr std::int64_t most_counted = 1'000'000'000;

// An integer of [least, most]; unlike CLI::PositiveNumber it is refused with integers, not with the
// digits of the largest number that there is.
inline CLI::Validator count(std::int64_t least = 1, std::int64_t most = most_counted) {
  return CLI::Range(least, most);
}

// Makes every option with a floating-point value, of all commands below too, refuse infinities and
// NaN, which no range of CLI11 does: a NaN is neither below nor above. Call it once all are added.
void expect_finite_numbers(CLI::App& app);
// What it says behind such a value; no range says it.
inline constexpr const char* not_finite = " is no finite number; give one";

}  // namespace garonne::apps
