// A device tier in a device's own memory, of which the host knows the addresses and no more.
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "exec/tier_ledger.hpp"

namespace garonne::exec {
namespace {

class MemoryLedger final : public DeviceTier::Ledger {
 public:
  MemoryLedger(std::shared_ptr<device::TierMemory> memory, DeviceKind kind)
      : memory_(std::move(memory)), on_gpu_(kind == DeviceKind::Cuda) {
    expect(memory_ != nullptr && memory_->tier() == Tier::Device, "no memory of a device");
    static_cast<void>(set_live_apart());
  }

  bool on_gpu() const override { return on_gpu_; }
  c10::DataPtr allocate(std::size_t size) override;
  void release(void* block) { memory_->release({Tier::Device, static_cast<std::byte*>(block), 0}); }

  std::int64_t limit_bytes() const override { return memory_->limit_bytes() - apart_; }
  std::int64_t granularity() const override { return memory_->granularity(); }
  std::int64_t live_bytes() const override { return memory_->live_bytes() - apart_; }
  std::int64_t peak_bytes() const override { return memory_->peak_bytes() - apart_; }
  std::int64_t resident_bytes() const override { return memory_->limit_bytes(); }
  void reset_peak() override { memory_->reset_peak(); }
  std::uint64_t layout() const override { return memory_->layout(); }
  std::int64_t set_live_apart() override;

 private:
  const std::shared_ptr<device::TierMemory> memory_;
  const bool on_gpu_;
  std::int64_t apart_ = 0;  // live, and not counted
};

// Whose each block is. Nothing can be written in front of one, and whoever gives it back knows its
// address only.
struct Owners {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<MemoryLedger>> by_block;
};

Owners& owners() {
  // Never destroyed: libraries keep workspaces to the end of the process.
  static Owners& all = *new Owners;
  return all;
}

}  // namespace

bool release_if_on_gpu(void* block) {
  std::shared_ptr<MemoryLedger> owner;
  {
    Owners& all = owners();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_block.find(block);
    if (found == all.by_block.end()) return false;
    owner = std::move(found->second);
    all.by_block.erase(found);
  }
  owner->release(block);
  return true;
}

void release_on_gpu(void* block) {
  if (block == nullptr) return;
  expect(release_if_on_gpu(block), "what is given back is no block of a device tier");
}

namespace {

c10::DataPtr MemoryLedger::allocate(std::size_t size) {
  void* const block = memory_->allocate(static_cast<std::int64_t>(size), named_activity()).data;
  {
    Owners& all = owners();
    const std::lock_guard lock(all.mutex);
    all.by_block.emplace(block, std::static_pointer_cast<MemoryLedger>(shared_from_this()));
  }
  return {block, block, &release_on_gpu, c10::Device(c10::DeviceType::CPU)};
}

std::int64_t MemoryLedger::set_live_apart() {
  const std::int64_t before = apart_;
  apart_ = memory_->live_bytes();
  memory_->reset_peak();
  return apart_ - before;
}

}  // namespace

std::shared_ptr<DeviceTier::Ledger> make_memory_ledger(std::shared_ptr<device::TierMemory> memory,
                                                       DeviceKind kind) {
  return std::make_shared<MemoryLedger>(std::move(memory), kind);
}

}  // namespace garonne::exec
