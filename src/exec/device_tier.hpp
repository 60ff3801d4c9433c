// The device tier: memory of tensors with a hard limit. On CPUs a counting allocator that keeps the
// pages of freed blocks for reuse, elsewhere the device's own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/device.hpp"
#include "device/tier_memory.hpp"

namespace garonne::exec {

// Bytes handed out, each allocation rounded up to the granularity. Used by one thread.
//
// While a DeviceScope of this tier is open on a thread, everything that the tensor library
// allocates on that thread comes from here; other threads, and the thread outside the scope,
// allocate from the host. Of a GPU it is what the library allocates there, on whichever thread;
// what it allocates on the host is not counted.
class DeviceTier {
 public:
  // Of the host's memory. On an emulated device blocks are full of NaN when they are handed out and
  // when they are given back: a read of what nobody wrote, or of what was freed, is seen in the
  // result.
  explicit DeviceTier(std::int64_t limit_bytes, DeviceKind kind = DeviceKind::Cpu);
  // Of `memory`, which is a GPU's where the kind is Cuda, else one that the host reaches. What is
  // live there is not counted and takes from the limit.
  DeviceTier(std::shared_ptr<device::TierMemory> memory, DeviceKind kind);
  ~DeviceTier();
  DeviceTier(const DeviceTier&) = delete;
  DeviceTier& operator=(const DeviceTier&) = delete;

  std::int64_t limit_bytes() const;
  std::int64_t granularity() const;
  std::int64_t live_bytes() const;
  std::int64_t peak_bytes() const;  // since the last reset_peak()
  // Of pages that the tier holds, free ones between blocks included: at most a sixteenth more than
  // the limit, and a few pages at the ends of blocks. A device's own memory is held as a whole.
  std::int64_t resident_bytes() const;
  void reset_peak();
  // Of a device's own memory: equal where the same blocks are handed out.
  std::uint64_t layout() const;
  // What is live now stays for good, as workspaces of libraries do: from now on it is not counted
  // and takes from the limit. Gives its bytes.
  std::int64_t set_live_apart();
  // Named in the error when an allocation is refused.
  void set_activity(const std::string& activity);
  std::string activity() const;

  class Ledger;
  const std::shared_ptr<Ledger>& ledger() const { return ledger_; }

 private:
  // Blocks may outlive the tier (a tensor returned to the caller), so they share what counts them.
  std::shared_ptr<Ledger> ledger_;
};

// Installs the tier for the tensor library's allocations of this thread, or of all threads where it
// is a GPU's. Scopes nest.
class DeviceScope {
 public:
  explicit DeviceScope(const DeviceTier& tier);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  bool on_gpu_;
  DeviceTier::Ledger* outer_;
};

// On this thread the tensor library allocates what is the host's from the host, whatever scope is
// open.
class HostScope {
 public:
  HostScope();
  ~HostScope();
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  DeviceTier::Ledger* outer_;
};

// For the tensor library's allocator of a GPU, on any thread: a block of the tier whose scope is
// open. InternalError where none is. Null for zero bytes.
void* allocate_on_gpu(std::size_t bytes);
// A block of allocate_on_gpu, or null.
void release_on_gpu(void* block);

}  // namespace garonne::exec
