// Blocks of a tier that nobody needs any more, but of which a lane still reads or writes.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "device/device.hpp"
#include "device/tier_memory.hpp"

namespace garonne::device {

// Of all that have blocks of the tier for a while: what is refused to one may wait for what another
// has given back. For the thread that puts work on the device.
class FinishingBlocks {
 public:
  // Both outlive it; blocks that are left then are the tier's.
  FinishingBlocks(Device& device, TierMemory& memory) : device_(device), memory_(memory) {}
  FinishingBlocks(const FinishingBlocks&) = delete;
  FinishingBlocks& operator=(const FinishingBlocks&) = delete;

  const TierMemory& memory() const { return memory_; }

  // A block of the tier. Complete ones are released; where that is not enough, the oldest are
  // waited for until there is room. RefusedError as the tier's, where none is left.
  Span allocate(std::int64_t bytes, const std::string& activity);
  // The block goes once `last`, its last use, is over, without anybody asking. A number to ask by.
  std::uint64_t release_after(Span block, Mark last);
  // Whether the use that has the number may still be under way; after release_complete().
  bool holds(std::uint64_t number) const;
  void release_complete();
  // Waits for them.
  void release_all();

 private:
  struct Finishing {
    std::uint64_t number = 0;
    Span block;
    Mark last;
  };
  void release_oldest();

  Device& device_;
  TierMemory& memory_;
  std::uint64_t last_number_ = 0;
  std::deque<Finishing> finishing_;
};

}  // namespace garonne::device
