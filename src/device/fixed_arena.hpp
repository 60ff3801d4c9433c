// Blocks of one range of memory that somebody else allocated, on a device or pinned on the host.
#pragma once

#include <cstdint>
#include <memory>

#include "device/block_source.hpp"
#include "device/free_ranges.hpp"

namespace garonne::device {

// The memory itself is never touched, so that a host may cut up what only a device can reach.
class FixedArena final : public BlockSource {
 public:
  // From `begin`, which is aligned as blocks are to be.
  FixedArena(void* begin, std::int64_t bytes);
  // The same blocks of the same memory: to find out what would come next.
  std::unique_ptr<FixedArena> copy() const;

  void* allocate(std::int64_t bytes) override;
  void release(void* block, std::int64_t bytes) override;

  bool contains(const void* data, std::int64_t bytes) const;
  // From the beginning to the end of the last block there ever was. Where every step allocates the
  // same in the same order, it grows no more from the second step on.
  std::int64_t reach_bytes() const { return reach_bytes_; }

 private:
  char* const begin_;
  const std::int64_t bytes_;
  std::int64_t reach_bytes_ = 0;
  FreeRanges free_;
};

}  // namespace garonne::device
