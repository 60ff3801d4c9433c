// The CPU as a device: Compute is the thread that calls, the other lanes are threads beside it. Its
// device tier is the memory of the process.
#pragma once

#include <limits>

#include "device/threaded_device.hpp"

namespace garonne::device {

class CpuDevice final : public ThreadedDevice {
 public:
  // `threads` for kernels on Compute (0 = all of the session's); no wait for a lane lasts longer
  // than `longest_wait_seconds`.
  explicit CpuDevice(int threads = 0,
                     double longest_wait_seconds = std::numeric_limits<double>::infinity());

  DeviceKind kind() const override { return DeviceKind::Cpu; }
  // Of the machine. What control groups and limits of the process leave of it is not looked at.
  MemoryFacts memory() const override;
};

}  // namespace garonne::device
