// The device that a rank of a run computes on.
#pragma once

#include <memory>

#include "base/config.hpp"
#include "device/device.hpp"

namespace garonne::train {

// run.device. It outlives what computes on it, but for what its lanes use.
std::unique_ptr<device::Device> make_device(const RunConfig& config);

}  // namespace garonne::train
