// What stands behind a device tier: who hands out blocks and counts them. For the tier's own use.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "exec/device_tier.hpp"

namespace garonne::exec {

class DeviceTier::Ledger : public std::enable_shared_from_this<Ledger> {
 public:
  virtual ~Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Whether tensors of a GPU are here, not those of the host.
  virtual bool on_gpu() const { return false; }
  // A block of more than zero bytes as the tensor library's allocator of the host hands it out;
  // RefusedError with the activity where the limit would be passed.
  virtual c10::DataPtr allocate(std::size_t size) = 0;

  virtual std::int64_t limit_bytes() const = 0;
  virtual std::int64_t granularity() const = 0;
  virtual std::int64_t live_bytes() const = 0;
  virtual std::int64_t peak_bytes() const = 0;
  virtual std::int64_t resident_bytes() const = 0;
  virtual void reset_peak() = 0;
  // Of a device's own memory: TierMemory::layout.
  virtual std::uint64_t layout() const { return 0; }
  virtual std::int64_t set_live_apart() = 0;

  // What the tier is used for; any thread.
  void set_activity(const std::string& activity) {
    const std::lock_guard lock(activity_mutex_);
    activity_ = activity;
  }
  std::string activity() const {
    const std::lock_guard lock(activity_mutex_);
    return activity_;
  }
  std::string named_activity() const {
    const std::string name = activity();
    return name.empty() ? "outside any instruction" : name;
  }

 protected:
  Ledger() = default;

 private:
  mutable std::mutex activity_mutex_;
  std::string activity_;
};

// Installs the allocator of the host; of the host's own memory.
std::shared_ptr<DeviceTier::Ledger> make_host_ledger(std::int64_t limit_bytes, DeviceKind kind);
std::shared_ptr<DeviceTier::Ledger> make_memory_ledger(std::shared_ptr<device::TierMemory> memory,
                                                       DeviceKind kind);

// False where the block is of no device's own memory.
bool release_if_on_gpu(void* block);

// Of the calling thread; null: tensors are the host's.
DeviceTier::Ledger*& current_host_ledger();

// Tensors of the host come from current_host_ledger() from now on, in all of the process.
void install_host_allocator();

}  // namespace garonne::exec
