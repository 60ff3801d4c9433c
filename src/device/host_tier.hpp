// Memory of the host as a tier below a device that has its own: blocks, counted, with a hard limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/device.hpp"
#include "device/tier_memory.hpp"

namespace garonne::device {

// What a host tier is.
struct HostTierSettings {
  std::int64_t limit_bytes = 0;
  // How far blocks reach (tier_places()): this much memory there is, and no more.
  std::int64_t room_bytes = 0;
  // Memory that has the room, as pinned memory beside a GPU, at an address that
  // host_allocation_granularity allows, and that outlives the tier. Empty: memory of its own.
  Span memory = {};
  // Blocks are full of NaN when they are handed out and when they are given back, for tests.
  bool spoils = false;
};

class HostTier {
 public:
  explicit HostTier(const HostTierSettings& settings);
  ~HostTier();
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  // Safe for all threads. RefusedError for blocks beyond the room, too.
  TierMemory& memory() { return *memory_; }

 private:
  void* own_ = nullptr;
  std::unique_ptr<TierMemory> memory_;
};

}  // namespace garonne::device
