#include "device/tier_memory.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/arena.hpp"

namespace garonne::device {

// A sixteenth more than the limit for room between blocks.
TierMemory::TierMemory(TierSettings settings)
    : TierMemory(settings,
                 std::make_unique<Arena>(settings.limit_bytes + settings.limit_bytes / 16)) {}

TierMemory::TierMemory(TierSettings settings, std::unique_ptr<BlockSource> source)
    : settings_(std::move(settings)), source_(std::move(source)) {
  const std::int64_t granularity = settings_.granularity;
  expect(granularity >= Arena::alignment && granularity <= sysconf(_SC_PAGESIZE) &&
             std::has_single_bit(static_cast<std::uint64_t>(granularity)),
         fmt::format("a tier with a granularity of {} bytes", granularity));
}

Span TierMemory::allocate(std::int64_t bytes, const std::string& activity) {
  std::string refusal;
  const std::optional<Span> block = take(bytes, activity, &refusal);
  if (!block) throw RefusedError(refusal);
  return *block;
}

std::optional<Span> TierMemory::try_allocate(std::int64_t bytes, const std::string& activity) {
  return take(bytes, activity, nullptr);
}

std::optional<Span> TierMemory::take(std::int64_t bytes, const std::string& activity,
                                     std::string* refusal) {
  expect(bytes >= 0, fmt::format("{}: an allocation of {} bytes", activity, bytes));
  if (bytes == 0) return Span{settings_.tier, nullptr, 0};
  const std::int64_t limit = settings_.limit_bytes;
  Span block{settings_.tier, nullptr, bytes};
  std::int64_t counted = 0;
  {
    const std::lock_guard lock(mutex_);
    // Not rounded before it is known to be no more than the limit: rounding may overflow.
    if (bytes <= limit) counted = round_up(bytes, settings_.granularity);
    if (bytes > limit || counted > limit - live_) {
      if (refusal != nullptr) {
        *refusal = fmt::format(
            "{}: {} bytes more than the {} live ones of the {} tier would pass its {} bytes ({})",
            activity, std::max(bytes, counted), live_, to_string(settings_.tier), limit,
            format_bytes(limit));
      }
      return std::nullopt;
    }
    block.data = static_cast<std::byte*>(source_->allocate(counted));
    if (block.data == nullptr) {
      if (refusal != nullptr) {
        *refusal = fmt::format(
            "{}: of the {} tier's {} bytes ({}) {} are live, but no hole between blocks has {} "
            "bytes",
            activity, to_string(settings_.tier), limit, format_bytes(limit), live_, counted);
      }
      return std::nullopt;
    }
    blocks_.emplace(block.data, counted);
    live_ += counted;
    peak_ = std::max(peak_, live_);
  }
  if (settings_.spoil) settings_.spoil({block.tier, block.data, counted});
  return block;
}

void TierMemory::release(Span block) {
  if (block.data == nullptr) return;
  std::int64_t counted = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(block.data);
    expect(found != blocks_.end() && block.tier == settings_.tier,
           fmt::format("what is given back is no block of the {} tier", to_string(settings_.tier)));
    counted = found->second;
    blocks_.erase(found);
  }
  if (settings_.spoil) settings_.spoil({block.tier, block.data, counted});
  const std::lock_guard lock(mutex_);
  live_ -= counted;
  source_->release(block.data, counted);
}

std::uint64_t TierMemory::layout() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = blocks_.size();
  for (const auto& [address, bytes] : blocks_) {
    // The mixing of splitmix64: sums of it differ where blocks do.
    std::uint64_t mixed = reinterpret_cast<std::uintptr_t>(address) * 0x9E3779B97F4A7C15ULL +
                          static_cast<std::uint64_t>(bytes);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
    sum += mixed ^ (mixed >> 31);
  }
  return sum;
}

std::int64_t TierMemory::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

std::int64_t TierMemory::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void TierMemory::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = live_;
}

}  // namespace garonne::device
