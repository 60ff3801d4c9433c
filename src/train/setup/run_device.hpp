// The device that a rank of a run computes on.
#pragma once

#include <memory>

#include "base/config.hpp"
#include "device/device.hpp"

namespace garonne::train {

// run.device.
DeviceKind device_kind(const RunConfig& config);

// What the lanes of an emulated one are late by depends on train.seed and the rank.
std::unique_ptr<device::Device> make_device(const RunConfig& config, int rank);

}  // namespace garonne::train
