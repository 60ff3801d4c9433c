// Memory of one tier with a hard limit: what is handed out is counted, and refused at the limit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "device/block_source.hpp"
#include "device/device.hpp"

namespace garonne::device {

// Blocks that meet files on disk start and end where blocks of files do.
inline constexpr std::int64_t host_allocation_granularity = 4096;

// Every byte of memory that is spoilt for tests: a NaN in all floating-point types.
inline constexpr int nan_pattern = 0xFF;

// What a tier is.
struct TierSettings {
  Tier tier = Tier::Host;
  std::int64_t limit_bytes = 0;
  // Addresses and counted sizes are multiples of it: a power of two from 64 up to a page.
  std::int64_t granularity = host_allocation_granularity;
  // Called with every block when it is handed out and when it is given back, before anybody else
  // has it. May be empty.
  std::function<void(Span)> spoil = nullptr;
};

// Safe for all threads. Blocks do not outlive it.
class TierMemory {
 public:
  // InternalError for a granularity that the arena does not have.
  explicit TierMemory(TierSettings settings);
  // Blocks come from `source`, which has at least the limit and room between blocks.
  TierMemory(TierSettings settings, std::unique_ptr<BlockSource> source);

  // Nothing for zero bytes. RefusedError names `activity`, bytes, what is live and the limit, also
  // where no hole between blocks is long enough.
  Span allocate(std::int64_t bytes, const std::string& activity);
  // The same, nothing where it would be refused.
  std::optional<Span> try_allocate(std::int64_t bytes, const std::string& activity);
  // InternalError for what is not a block that is handed out.
  void release(Span block);

  Tier tier() const { return settings_.tier; }
  std::int64_t limit_bytes() const { return settings_.limit_bytes; }
  std::int64_t granularity() const { return settings_.granularity; }
  std::int64_t live_bytes() const;
  std::int64_t peak_bytes() const;  // since the last reset_peak()
  void reset_peak();
  // Equal where the same blocks are handed out: their addresses and sizes, in any order.
  std::uint64_t layout() const;

 private:
  // Without a block, why not.
  std::optional<Span> take(std::int64_t bytes, const std::string& activity, std::string* refusal);

  const TierSettings settings_;
  mutable std::mutex mutex_;
  const std::unique_ptr<BlockSource> source_;
  // Counted bytes by address: beside the blocks, which a host may be unable to touch.
  std::unordered_map<const std::byte*, std::int64_t> blocks_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace garonne::device
