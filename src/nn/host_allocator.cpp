#include "nn/host_allocator.hpp"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace garonne::nn {
namespace {

struct Watch {
  std::int64_t most_bytes = 0;
  std::vector<std::int64_t> blocks;
};

struct Enough {};

Watch*& watch_of_thread() {
  thread_local Watch* watch = nullptr;
  return watch;
}

class WatchScope {
 public:
  explicit WatchScope(Watch& watch) : outer_(std::exchange(watch_of_thread(), &watch)) {}
  ~WatchScope() { watch_of_thread() = outer_; }
  WatchScope(const WatchScope&) = delete;
  WatchScope& operator=(const WatchScope&) = delete;

 private:
  Watch* outer_;
};

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (Watch* const watch = watch_of_thread()) {
      watch->blocks.push_back(static_cast<std::int64_t>(size));
      if (watch->blocks.back() > watch->most_bytes) throw Enough();
    }
    return source_.load()->allocate(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return source_.load()->raw_deleter(); }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }

  void set_source(c10::Allocator& source) { source_ = &source; }

 private:
  std::atomic<c10::Allocator*> source_ = c10::GetDefaultCPUAllocator();
};

HostAllocator& host_allocator() {
  static HostAllocator allocator;
  static std::once_flag once;
  std::call_once(once, [] { c10::SetCPUAllocator(&allocator, /*priority=*/100); });
  return allocator;
}

}  // namespace

void set_host_allocator(c10::Allocator& source) {
  host_allocator().set_source(source);
}

std::vector<std::int64_t> blocks_until(std::int64_t most_bytes, const std::function<void()>& work) {
  host_allocator();
  Watch watch{most_bytes, {}};
  const WatchScope scope(watch);
  try {
    work();
  } catch (const Enough&) {
  }
  return watch.blocks;
}

}  // namespace garonne::nn
