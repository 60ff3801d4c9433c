// The contents of a buffer of the device on a tier below it.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "device/tier_memory.hpp"

namespace garonne::exec {

// And how the tensor looked, or will look there.
struct Lowered {
  device::TierMemory* memory = nullptr;
  device::Span block;      // of it
  std::int64_t bytes = 0;  // of the tensor's storage
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;  // elements
  bool lasts = false;       // from step to step: not the step's to give back
};

}  // namespace garonne::exec
