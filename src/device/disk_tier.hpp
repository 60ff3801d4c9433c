// The disk as a tier of memory: blocks of one file, counted, with a hard limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/disk_file.hpp"
#include "device/fixed_arena.hpp"
#include "device/tier_memory.hpp"

namespace garonne::device {

// What a disk tier is.
struct DiskTierSettings {
  std::string folder;
  std::int64_t limit_bytes = 0;
  // Of the file: where all blocks will be that there ever are at once (places_on_disk()). 0: room
  // for the limit, between blocks too as long as they leave no holes.
  std::int64_t file_bytes = 0;
  // Through which goes what is not aligned as blocks of the file are: disk_staging_bytes or more,
  // which outlive the tier. Empty: memory of its own.
  Span staging = {};
};

// For each direction a piece, and what aligns it.
inline constexpr std::int64_t disk_staging_piece_bytes = std::int64_t{256} << 10;
inline constexpr std::int64_t disk_staging_bytes =
    2 * (disk_staging_piece_bytes + host_allocation_granularity);

// Where blocks of a tier with such a limit go: who asks for the same ones in the same order finds
// out how far they reach.
std::unique_ptr<FixedArena> places_on_disk(std::int64_t limit_bytes);

// Its blocks are places in the file: their addresses are nobody's to touch. Safe for all threads.
class DiskTier {
 public:
  // Room for the file is taken at once. Throws as DiskFile does.
  explicit DiskTier(const DiskTierSettings& settings);

  TierMemory& memory() { return memory_; }
  bool direct() const { return file_.direct(); }
  std::int64_t file_bytes() const { return file_.bytes(); }

  // The first `bytes` of a block. They hold the thread until all is done. IoError.
  void write(Span block, const std::byte* from, std::int64_t bytes);
  void read(Span block, std::byte* to, std::int64_t bytes);

 private:
  // One for each direction, so that they run beside each other.
  struct Staging {
    std::mutex mutex;
    Span span;  // aligned
  };

  std::int64_t offset_of(Span block) const;
  bool is_aligned(const std::byte* data, std::int64_t bytes) const;
  void make(Staging& staging, Span from) const;

  DiskFile file_;
  TierMemory memory_;
  std::vector<std::byte> own_;  // staging, where nobody gave any
  Staging outward_;
  Staging inward_;
};

}  // namespace garonne::device
