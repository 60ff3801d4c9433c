// Seconds in the files of plans.
#pragma once

#include "base/json_input.hpp"

namespace garonne::plan {

inline constexpr double most_file_seconds = 1e12;

// Errors are those of JsonPlace.
inline double seconds_of(const JsonPlace& place) {
  return place.number(0, most_file_seconds);
}

}  // namespace garonne::plan
