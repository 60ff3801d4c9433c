// The disk as a tier of memory: blocks of one file, counted, with a hard limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
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
  // Of the file: where all blocks will be that there ever are at once (tier_places()). 0: room
  // for the limit, between blocks too as long as they leave no holes.
  std::int64_t file_bytes = 0;
  // Through which goes what is not aligned as blocks of the file are: disk_staging_bytes or more,
  // which outlive the tier. Empty: memory of its own.
  Span staging = {};
  // Through which goes memory that the host does not reach, where there is such: pinned, a multiple
  // of disk_pinned_pieces pieces, at an address that host_allocation_granularity allows. It
  // outlives the tier.
  Span pinned = {};
};

// Two for each direction: one is copied while the file has the other.
inline constexpr std::int64_t disk_pinned_pieces = 4;
inline constexpr std::int64_t disk_pinned_bytes = disk_pinned_pieces * (std::int64_t{1} << 20);

// For each direction a piece, and what aligns it; and one for show() and fill().
inline constexpr std::int64_t disk_staging_piece_bytes = std::int64_t{256} << 10;
inline constexpr std::int64_t disk_staging_bytes =
    3 * (disk_staging_piece_bytes + host_allocation_granularity);

// Its blocks are places in the file: their addresses are nobody's to touch. Safe for all threads,
// but for show() and fill(), which are for one at a time.
class DiskTier {
 public:
  // Room for the file is taken at once. Throws as DiskFile does.
  explicit DiskTier(const DiskTierSettings& settings);

  TierMemory& memory() { return memory_; }
  bool direct() const { return file_.direct(); }
  std::int64_t file_bytes() const { return file_.bytes(); }
  // What a process that is a copy of this one needs for show().
  int descriptor() const { return file_.descriptor(); }

  // The first `bytes` of a block. They hold the thread until all is done. IoError.
  void write(Span block, const std::byte* from, std::int64_t bytes);
  void read(Span block, std::byte* to, std::int64_t bytes);

  // The same of memory of a device that the host does not reach.
  void write(Span block, Span from, ThreadCopies& copies);
  void read(Span block, Span to, ThreadCopies& copies);

  // Bytes of a block from `first` on, in pieces that start at multiples of
  // disk_staging_piece_bytes and so hold whole elements: shown in their order, or replaced by what
  // `make` writes from byte `at` of them on. They take no lock, so that a process that is a copy of
  // this one may show what is there. IoError.
  using Show = std::function<void(std::span<const std::byte> piece)>;
  void show(Span block, std::int64_t first, std::int64_t bytes, const Show& show);
  using Make = std::function<void(std::int64_t at, std::span<std::byte> piece)>;
  void fill(Span block, std::int64_t first, std::int64_t bytes, const Make& make);

 private:
  // One for each direction, so that they run beside each other.
  struct Staging {
    std::mutex mutex;
    Span span;  // aligned
  };

  std::int64_t offset_of(Span block) const;
  // Of the first bytes there those that the file takes without staging.
  std::int64_t direct_bytes(const std::byte* data, std::int64_t bytes) const;
  void make(Staging& staging, Span from) const;
  std::array<Span, 2> pinned_pieces(int direction) const;
  // The piece of a block that has byte `at`, as much of it as is within the block.
  Span piece_at(Span block, std::int64_t at) const;

  DiskFile file_;
  TierMemory memory_;
  std::vector<std::byte> own_;  // staging, where nobody gave any
  Staging outward_;
  Staging inward_;
  Staging beside_;
  const Span pinned_;
  std::mutex pinned_outward_;
  std::mutex pinned_inward_;
};

}  // namespace garonne::device
