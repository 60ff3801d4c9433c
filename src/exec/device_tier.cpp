#include "exec/device_tier.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/arena.hpp"

namespace garonne::exec {

class DeviceTier::Ledger : public std::enable_shared_from_this<Ledger> {
 public:
  // Headers in front of the blocks are no bytes of the tier but live in the same pages.
  // Room between blocks is worth some pages over the limit: giving them back and taking fresh ones
  // in every step costs more time than the best plan saves.
  Ledger(std::int64_t limit, DeviceKind kind)
      : limit_(limit), spoils_(kind == DeviceKind::Emulated), arena_(limit + limit / 16) {}

  void* allocate(std::int64_t bytes);
  void release(void* block, std::int64_t bytes);

  std::mutex mutex_;  // a tensor may be released on another thread than it was made on
  const std::int64_t limit_;
  const bool spoils_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  std::string activity_;
  device::Arena arena_;
};

namespace {

using Ledger = DeviceTier::Ledger;

// In front of every block, so that releasing it finds its way without a look-up.
struct Header {
  std::shared_ptr<Ledger>* ledger;  // null for a host block
  std::int64_t bytes;
};
constexpr std::int64_t header_bytes = 64;
static_assert(sizeof(Header) <= header_bytes);

// Every byte of it: a NaN in all floating-point types.
constexpr int nan_pattern = 0xFF;

thread_local Ledger* current = nullptr;

void* system_block(std::int64_t bytes) {
  void* block = nullptr;
  if (posix_memalign(&block, static_cast<std::size_t>(cpu_allocation_granularity),
                     static_cast<std::size_t>(bytes + header_bytes)) != 0) {
    throw std::bad_alloc();
  }
  return static_cast<char*>(block) + header_bytes;
}

Header& header_of(void* data) {
  return *reinterpret_cast<Header*>(static_cast<char*>(data) - header_bytes);
}

void release_system_block(void* data) {
  std::free(static_cast<char*>(data) - header_bytes);
}

void release_data(void* data) {
  if (data == nullptr) return;
  Header& header = header_of(data);
  if (header.ledger == nullptr) {
    release_system_block(data);
    return;
  }
  const std::unique_ptr<std::shared_ptr<Ledger>> owner(header.ledger);
  (*owner)->release(data, header.bytes);
}

// The tensor library's one CPU allocator of the process: counts in the tier of the calling thread's
// scope.
class TierAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (size == 0) return {nullptr, nullptr, &release_data, cpu};
    const std::int64_t bytes =
        round_up(static_cast<std::int64_t>(size), cpu_allocation_granularity);
    void* data = nullptr;
    if (current == nullptr) {
      data = system_block(bytes);
      header_of(data) = {nullptr, bytes};
    } else {
      data = current->allocate(bytes);
      header_of(data) = {new std::shared_ptr<Ledger>(current->shared_from_this()), bytes};
    }
    // The context must be the data pointer: oneDNN's operators ask for it.
    return {data, data, &release_data, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_data; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

void install_allocator() {
  static TierAllocator allocator;
  static std::once_flag once;
  std::call_once(once, [] { c10::SetCPUAllocator(&allocator, /*priority=*/100); });
}

}  // namespace

void* DeviceTier::Ledger::allocate(std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (live_ + bytes > limit_) {
    throw RefusedError(
        fmt::format("{}: an allocation of {} bytes would bring the live bytes to {} and the budget "
                    "is {} bytes ({})",
                    activity_.empty() ? "outside any instruction" : activity_, bytes, live_ + bytes,
                    limit_, format_bytes(limit_)));
  }
  void* block = arena_.allocate(bytes + header_bytes);
  live_ += bytes;
  if (live_ > peak_) peak_ = live_;
  void* data = static_cast<char*>(block) + header_bytes;
  if (spoils_) std::memset(data, nan_pattern, static_cast<std::size_t>(bytes));
  return data;
}

void DeviceTier::Ledger::release(void* block, std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_ -= bytes;
  if (spoils_) std::memset(block, nan_pattern, static_cast<std::size_t>(bytes));
  arena_.release(static_cast<char*>(block) - header_bytes, bytes + header_bytes);
}

DeviceTier::DeviceTier(std::int64_t limit_bytes, DeviceKind kind)
    : ledger_(std::make_shared<Ledger>(limit_bytes, kind)) {
  install_allocator();
}

DeviceTier::~DeviceTier() = default;

std::int64_t DeviceTier::limit_bytes() const {
  return ledger_->limit_;
}
std::int64_t DeviceTier::live_bytes() const {
  return ledger_->live_;
}
std::int64_t DeviceTier::peak_bytes() const {
  return ledger_->peak_;
}
std::int64_t DeviceTier::resident_bytes() const {
  return ledger_->arena_.resident_bytes();
}
void DeviceTier::reset_peak() {
  ledger_->peak_ = ledger_->live_;
}
std::string DeviceTier::activity() const {
  return ledger_->activity_;
}

void DeviceTier::set_activity(const std::string& activity) {
  ledger_->activity_ = activity;
}

DeviceScope::DeviceScope(const DeviceTier& tier) : outer_(current) {
  current = tier.ledger().get();
}
DeviceScope::~DeviceScope() {
  current = outer_;
}

}  // namespace garonne::exec
