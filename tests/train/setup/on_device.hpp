// A run on a device.
#pragma once

#include <string>

#include "base/config.hpp"

namespace garonne::train {

inline RunConfig on(const std::string& device) {
  RunConfig config;
  config.run.device = device;
  return config;
}

}  // namespace garonne::train
