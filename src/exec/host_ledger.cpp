// The device tier of CPUs: an arena whose blocks have a header.
#include <c10/core/Allocator.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/arena.hpp"
#include "device/tier_memory.hpp"
#include "exec/tier_ledger.hpp"
#include "nn/host_allocator.hpp"

namespace garonne::exec {
namespace {

// Headers in front of the blocks are no bytes of the tier but live in the same pages.
class HostLedger final : public DeviceTier::Ledger {
 public:
  // Room between blocks is worth some pages over the limit: giving them back and taking fresh ones
  // in every step costs more time than the best plan saves.
  HostLedger(std::int64_t limit, DeviceKind kind)
      : limit_(limit), spoils_(kind == DeviceKind::Emulated), arena_(limit + limit / 16) {}

  c10::DataPtr allocate(std::size_t size) override;
  void release(void* data);

  std::int64_t limit_bytes() const override { return limit_ - apart_; }
  std::int64_t granularity() const override { return cpu_allocation_granularity; }
  std::int64_t live_bytes() const override { return live_ - apart_; }
  std::int64_t peak_bytes() const override { return peak_ - apart_; }
  std::int64_t resident_bytes() const override { return arena_.resident_bytes(); }
  void reset_peak() override { peak_ = live_; }
  std::int64_t set_live_apart() override;

 private:
  void* take(std::int64_t bytes);
  void* place(std::int64_t bytes);

  std::mutex mutex_;  // a tensor may be released on another thread than it was made on
  const std::int64_t limit_;
  const bool spoils_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t apart_ = 0;  // live, and not counted
  device::Arena arena_;
};

// In front of every block, so that releasing it finds its way without a look-up.
struct Header {
  std::shared_ptr<HostLedger>* ledger;  // null for a host block
  std::int64_t bytes;
  void* block;  // of the arena, with its bytes
  std::int64_t block_bytes;
};
constexpr std::int64_t header_bytes = 64;
static_assert(sizeof(Header) <= header_bytes);

// They start where blocks of files do, so that copies to a disk go straight from them; of smaller
// ones the copy is no matter.
constexpr std::int64_t least_bytes_at_pages = std::int64_t{1} << 20;

// Every byte of it: a NaN in all floating-point types.
constexpr int nan_pattern = 0xFF;

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
  const std::unique_ptr<std::shared_ptr<HostLedger>> owner(header.ledger);
  (*owner)->release(data);
}

// For libraries that keep an address and no deleter: it may be a block of a device's own memory,
// which has no header.
void release_address(void* data) {
  if (data != nullptr && !release_if_on_gpu(data)) release_data(data);
}

// The context must be the data pointer: oneDNN's operators ask for it.
c10::DataPtr owned(void* data) {
  return {data, data, &release_data, c10::Device(c10::DeviceType::CPU)};
}

// Counts in the tier of the calling thread's scope.
class TierAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (size == 0) return owned(nullptr);
    if (DeviceTier::Ledger* const ledger = current_host_ledger()) return ledger->allocate(size);
    const std::int64_t bytes =
        round_up(static_cast<std::int64_t>(size), cpu_allocation_granularity);
    void* data = system_block(bytes);
    header_of(data) = {nullptr, bytes, nullptr, 0};
    return owned(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_address; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

c10::DataPtr HostLedger::allocate(std::size_t size) {
  const std::int64_t bytes = round_up(static_cast<std::int64_t>(size), cpu_allocation_granularity);
  void* data = take(bytes);
  header_of(data).ledger =
      new std::shared_ptr<HostLedger>(std::static_pointer_cast<HostLedger>(shared_from_this()));
  return owned(data);
}

void* HostLedger::take(std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (live_ + bytes > limit_) {
    throw RefusedError(
        fmt::format("{}: an allocation of {} bytes would bring the live bytes to {} and the budget "
                    "is {} bytes ({})",
                    named_activity(), bytes, live_ + bytes, limit_, format_bytes(limit_)));
  }
  void* data = place(bytes);
  live_ += bytes;
  if (live_ > peak_) peak_ = live_;
  if (spoils_) std::memset(data, nan_pattern, static_cast<std::size_t>(bytes));
  return data;
}

// Behind its header.
void* HostLedger::place(std::int64_t bytes) {
  constexpr std::int64_t page = device::host_allocation_granularity;
  const bool at_page = bytes >= least_bytes_at_pages;
  const std::int64_t block_bytes = bytes + (at_page ? page : header_bytes);
  void* const block = arena_.allocate(block_bytes);
  void* data = static_cast<char*>(block) + header_bytes;
  if (at_page) {
    auto room = static_cast<std::size_t>(block_bytes - header_bytes);
    std::align(static_cast<std::size_t>(page), static_cast<std::size_t>(bytes), data, room);
  }
  header_of(data) = {nullptr, bytes, block, block_bytes};
  return data;
}

void HostLedger::release(void* data) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Header& header = header_of(data);
  live_ -= header.bytes;
  if (spoils_) std::memset(data, nan_pattern, static_cast<std::size_t>(header.bytes));
  arena_.release(header.block, header.block_bytes);
}

std::int64_t HostLedger::set_live_apart() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t before = apart_;
  apart_ = peak_ = live_;
  return apart_ - before;
}

}  // namespace

std::shared_ptr<DeviceTier::Ledger> make_host_ledger(std::int64_t limit_bytes, DeviceKind kind) {
  return std::make_shared<HostLedger>(limit_bytes, kind);
}

DeviceTier::Ledger*& current_host_ledger() {
  thread_local DeviceTier::Ledger* current = nullptr;
  return current;
}

void install_host_allocator() {
  static TierAllocator allocator;
  nn::set_host_allocator(allocator);
}

}  // namespace garonne::exec
