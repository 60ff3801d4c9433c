// What a device does at its best: the roofs that a planner without a profile goes by.
#pragma once

#include "dist/session.hpp"

namespace garonne::train {

// Of one rank; the slowest of all.
struct DeviceRates {
  // Floating-point operations a second of the fastest large product.
  double float32_flops = 0;
  double bfloat16_flops = 0;
  double float64_flops = 0;
  double bytes_per_second = 0;  // read and written by a copy that no cache holds
};

// All ranks measure at once, since they share what a node has. Collective.
DeviceRates measure_device_rates(dist::Session& session);

}  // namespace garonne::train
