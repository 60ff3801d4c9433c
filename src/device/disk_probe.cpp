#include "device/disk_probe.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#include "base/seconds.hpp"
#include "device/disk_tier.hpp"

namespace garonne::device {
namespace {

using Clock = std::chrono::steady_clock;

// As large buffers are moved, from memory that is aligned as theirs is.
constexpr std::int64_t block_bytes = std::int64_t{4} << 20;
constexpr int small_accesses = 15;

// One direction, over blocks of its own in turns.
class Direction {
 public:
  Direction(DiskTier& tier, std::size_t blocks, bool writes)
      : tier_(tier),
        writes_(writes),
        memory_(static_cast<std::size_t>(block_bytes + 2 * host_allocation_granularity),
                std::byte{1}) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    constexpr auto page = static_cast<std::uintptr_t>(host_allocation_granularity);
    data_ = memory_.data() + (page - address % page);
    for (std::size_t k = 0; k < blocks; ++k) {
      blocks_.push_back(tier.memory().allocate(block_bytes, "a probe of the disk"));
      // What was never written is not read from the disk.
      tier.write(blocks_.back(), data_, block_bytes);
    }
  }

  // Bytes a second.
  double rate(double seconds) {
    const auto start = Clock::now();
    std::int64_t moved = 0;
    do {
      move(block_bytes);
      moved += block_bytes;
    } while (seconds_since(start) < seconds);
    return static_cast<double>(moved) / seconds_since(start);
  }

  double median_latency() {
    std::vector<double> seconds;
    for (int k = 0; k < small_accesses; ++k) {
      const auto start = Clock::now();
      move(host_allocation_granularity);
      seconds.push_back(seconds_since(start));
    }
    const auto middle = seconds.begin() + small_accesses / 2;
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
  }

 private:
  void move(std::int64_t bytes) {
    const Span block = blocks_[next_++ % blocks_.size()];
    if (writes_) {
      tier_.write(block, data_, bytes);
    } else {
      tier_.read(block, data_, bytes);
    }
  }

  DiskTier& tier_;
  const bool writes_;
  std::vector<std::byte> memory_;
  std::byte* data_ = nullptr;
  std::vector<Span> blocks_;
  std::size_t next_ = 0;
};

}  // namespace

DiskSpeed probe_disk(const std::string& folder, std::int64_t bytes, double seconds,
                     const std::function<void()>& beside) {
  const auto blocks = static_cast<std::size_t>(std::max<std::int64_t>(bytes / 2 / block_bytes, 1));
  DiskTier tier(
      {.folder = folder, .limit_bytes = 2 * static_cast<std::int64_t>(blocks) * block_bytes});
  Direction out(tier, blocks, true);
  Direction in(tier, blocks, false);
  DiskSpeed speed;
  speed.direct = tier.direct();
  speed.latency_seconds = std::max(out.median_latency(), in.median_latency());
  std::atomic<int> running = 2;
  std::exception_ptr failures[2];
  const auto measure = [&](Direction& direction, double& rate, std::exception_ptr& failure) {
    try {
      rate = direction.rate(seconds);
    } catch (...) {
      failure = std::current_exception();
    }
    --running;
  };
  std::thread writing([&] { measure(out, speed.write, failures[0]); });
  std::thread reading([&] { measure(in, speed.read, failures[1]); });
  std::exception_ptr failure;
  try {
    while (running > 0) beside();
  } catch (...) {
    failure = std::current_exception();
  }
  writing.join();
  reading.join();
  for (const std::exception_ptr& one : {failure, failures[0], failures[1]}) {
    if (one) std::rethrow_exception(one);
  }
  return speed;
}

}  // namespace garonne::device
