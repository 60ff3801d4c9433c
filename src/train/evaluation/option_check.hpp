#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "base/error.hpp"

namespace garonne::train {

// Throws ConfigError where the value of the option is less than 1.
inline void require_positive(const char* option, std::int64_t value) {
  if (value < 1) throw ConfigError(option, fmt::format("{}", value), "must be at least 1");
}

}  // namespace garonne::train
