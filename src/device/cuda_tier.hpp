// A tier of memory of a GPU, or of pinned memory beside one: a single allocation, made at start,
// from which blocks are cut on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda_check.hpp"
#include "device/fixed_arena.hpp"
#include "device/tier_memory.hpp"

namespace garonne::device {

class CudaTier {
 public:
  // Device or Host. A sixteenth more than the limit is allocated, for holes between blocks, and
  // `exact_bytes` beside both, for one block that is made first; blocks are multiples of 512 bytes
  // on a device and of 4096 on the host. `spoil` as in TierSettings. LaneError where the runtime
  // refuses. The check outlives the tier.
  CudaTier(const CudaCheck& check, Tier tier, std::int64_t limit_bytes, std::int64_t exact_bytes,
           std::function<void(Span)> spoil);
  ~CudaTier();
  CudaTier(const CudaTier&) = delete;
  CudaTier& operator=(const CudaTier&) = delete;

  TierMemory& blocks() { return *blocks_; }
  // For who may give blocks back later than the tier lasts.
  const std::shared_ptr<TierMemory>& shared_blocks() const { return blocks_; }
  bool contains(Span span) const { return arena_->contains(span.data, span.bytes); }
  std::int64_t reach_bytes() const { return arena_->reach_bytes(); }

  // No block is used any more. What freeing it said is appended.
  void destroy(std::vector<std::string>& failures);

 private:
  const CudaCheck& check_;
  const Tier tier_;
  void* memory_ = nullptr;
  const FixedArena* arena_ = nullptr;
  std::shared_ptr<TierMemory> blocks_;
};

}  // namespace garonne::device
