// A pretended device on the CPU, for tests: what is ordered wrongly on it gives other bits or NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "base/bytes.hpp"
#include "device/threaded_device.hpp"
#include "device/tier_memory.hpp"

namespace garonne::device {

struct EmulatedSettings {
  // Of the device tier.
  std::int64_t limit_bytes = 0;
  std::int64_t granularity = cpu_allocation_granularity;
  // Lanes are late by this plan (lateness.hpp); none: never.
  std::optional<std::uint64_t> delay_seed = std::nullopt;
  double longest_delay_seconds = 0.001;
  // What is held back until somebody asks for it is held no longer: nobody here may ever ask for
  // what another process waits for.
  double longest_hold_seconds = std::numeric_limits<double>::infinity();
  // Copies on these lanes take bytes divided by this, at least; on others what memcpy takes.
  std::map<Lane, double> bytes_per_second = {};
  bool compute_thread = false;  // see LaneSettings
  int threads = 0;              // of kernels on Compute; 0 = all of the session's
  double longest_wait_seconds = std::numeric_limits<double>::infinity();
};

// Its device tier is an arena of its own. Blocks are filled with NaN, in the order of Compute, when
// they are handed out and when they are given back: a read of what nobody wrote, or of what was
// freed, is seen in the result.
class EmulatedDevice final : public ThreadedDevice {
 public:
  explicit EmulatedDevice(const EmulatedSettings& settings);
  ~EmulatedDevice() override;

  DeviceKind kind() const override { return DeviceKind::Emulated; }
  MemoryFacts memory() const override;

  void copy_here(Lane lane, Span to, Span from) override { copy_slowly(lane, to, from); }

  // Where Compute has a thread, one thread puts work, allocates and releases. Else all may.
  TierMemory& device_memory() { return memory_; }

 private:
  void spoil(Span block);
  void copy_slowly(Lane lane, Span to, Span from);

  const std::map<Lane, double> bytes_per_second_;
  TierMemory memory_;
};

}  // namespace garonne::device
