#include "exec/device_tier.hpp"

#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "exec/tier_ledger.hpp"

namespace garonne::exec {
namespace {

// That of the innermost scope, for all threads: the tensor library may allocate on threads of its
// own.
struct GpuScope {
  std::mutex mutex;
  DeviceTier::Ledger* ledger = nullptr;
};

GpuScope& gpu_scope() {
  static GpuScope scope;
  return scope;
}

DeviceTier::Ledger* exchange_gpu_ledger(DeviceTier::Ledger* ledger) {
  GpuScope& scope = gpu_scope();
  const std::lock_guard lock(scope.mutex);
  return std::exchange(scope.ledger, ledger);
}

}  // namespace

DeviceTier::DeviceTier(std::int64_t limit_bytes, DeviceKind kind)
    : ledger_(make_host_ledger(limit_bytes, kind)) {
  install_host_allocator();
}

DeviceTier::DeviceTier(std::shared_ptr<device::TierMemory> memory, DeviceKind kind)
    : ledger_(make_memory_ledger(std::move(memory), kind)) {
  if (!ledger_->on_gpu()) install_host_allocator();
}

DeviceTier::~DeviceTier() = default;

std::int64_t DeviceTier::limit_bytes() const {
  return ledger_->limit_bytes();
}
std::int64_t DeviceTier::granularity() const {
  return ledger_->granularity();
}
std::int64_t DeviceTier::live_bytes() const {
  return ledger_->live_bytes();
}
std::int64_t DeviceTier::peak_bytes() const {
  return ledger_->peak_bytes();
}
std::int64_t DeviceTier::resident_bytes() const {
  return ledger_->resident_bytes();
}
std::uint64_t DeviceTier::layout() const {
  return ledger_->layout();
}
void DeviceTier::reset_peak() {
  ledger_->reset_peak();
}
std::int64_t DeviceTier::set_live_apart() {
  return ledger_->set_live_apart();
}
std::string DeviceTier::activity() const {
  return ledger_->activity();
}
void DeviceTier::set_activity(const std::string& activity) {
  ledger_->set_activity(activity);
}

DeviceScope::DeviceScope(const DeviceTier& tier) : on_gpu_(tier.ledger()->on_gpu()) {
  DeviceTier::Ledger* const ledger = tier.ledger().get();
  outer_ = on_gpu_ ? exchange_gpu_ledger(ledger) : std::exchange(current_host_ledger(), ledger);
}

DeviceScope::~DeviceScope() {
  if (on_gpu_) {
    exchange_gpu_ledger(outer_);
  } else {
    current_host_ledger() = outer_;
  }
}

HostScope::HostScope() : outer_(std::exchange(current_host_ledger(), nullptr)) {}

HostScope::~HostScope() {
  current_host_ledger() = outer_;
}

void* allocate_on_gpu(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  std::shared_ptr<DeviceTier::Ledger> ledger;
  {
    GpuScope& scope = gpu_scope();
    const std::lock_guard lock(scope.mutex);
    if (scope.ledger != nullptr) ledger = scope.ledger->shared_from_this();
  }
  expect(ledger != nullptr, "an allocation on the GPU outside of any tier");
  // Given back by its address: release_on_gpu.
  return ledger->allocate(bytes).release_context();
}

}  // namespace garonne::exec
