// How late the lanes of an emulated device are: what work that is ordered wrongly needs to be seen.
#pragma once

#include <cstdint>

#include <limits>

#include "device/device.hpp"

namespace garonne::device {

// Before one piece of work. All zero: at once.
struct Lateness {
  // As late as order allows: until somebody waits for it, or for so many seconds.
  bool until_asked_for = false;
  double hold_seconds = std::numeric_limits<double>::infinity();
  int yields = 0;
  double seconds = 0;
};

// A plan that depends on nothing but its arguments: a quarter of the work each at once, after some
// yields, after a sleep of up to `most_seconds`, and when asked for.
Lateness lateness_of(std::uint64_t seed, Mark mark, double most_seconds);

}  // namespace garonne::device
