// The device tier on CPUs: a counting allocator with a hard limit that keeps the pages of freed
// blocks for reuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/device.hpp"

namespace garonne::exec {

// Bytes handed out, each allocation rounded up to cpu_allocation_granularity. Used by one thread.
//
// While a DeviceScope of this tier is open on a thread, everything that the tensor library
// allocates on that thread comes from here; other threads, and the thread outside the scope,
// allocate from the host.
class DeviceTier {
 public:
  // On an emulated device blocks are full of NaN when they are handed out and when they are given
  // back: a read of what nobody wrote, or of what was freed, is seen in the result.
  explicit DeviceTier(std::int64_t limit_bytes, DeviceKind kind = DeviceKind::Cpu);
  ~DeviceTier();
  DeviceTier(const DeviceTier&) = delete;
  DeviceTier& operator=(const DeviceTier&) = delete;

  std::int64_t limit_bytes() const;
  std::int64_t live_bytes() const;
  std::int64_t peak_bytes() const;  // since the last reset_peak()
  // Of pages that the tier holds, free ones between blocks included: at most a sixteenth more than
  // the limit, and a few pages at the ends of blocks.
  std::int64_t resident_bytes() const;
  void reset_peak();
  // Named in the error when an allocation is refused.
  void set_activity(const std::string& activity);
  std::string activity() const;

  class Ledger;
  const std::shared_ptr<Ledger>& ledger() const { return ledger_; }

 private:
  // Blocks may outlive the tier (a tensor returned to the caller), so they share what counts them.
  std::shared_ptr<Ledger> ledger_;
};

// Installs the tier for the tensor library's allocations of this thread. Scopes nest.
class DeviceScope {
 public:
  explicit DeviceScope(const DeviceTier& tier);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  DeviceTier::Ledger* outer_;
};

}  // namespace garonne::exec
