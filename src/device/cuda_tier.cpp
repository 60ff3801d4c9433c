#include "device/cuda_tier.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/cuda_budget.hpp"

namespace garonne::device {

CudaTier::CudaTier(const CudaCheck& check, Tier tier, std::int64_t limit_bytes,
                   std::int64_t exact_bytes, std::function<void(Span)> spoil)
    : check_(check), tier_(tier) {
  expect(tier == Tier::Device || tier == Tier::Host, "files are no memory of a GPU");
  const bool on_device = tier == Tier::Device;
  const std::int64_t granularity =
      on_device ? cuda_allocation_granularity : host_allocation_granularity;
  const std::int64_t bytes =
      round_up(tier_bytes_of_budget(limit_bytes), granularity) + round_up(exact_bytes, granularity);
  const std::string activity =
      fmt::format("{} for the {} tier", format_bytes(bytes), to_string(tier));
  CudaRuntime& runtime = check_.runtime();
  if (bytes > 0) {
    const auto size = static_cast<std::size_t>(bytes);
    if (on_device) {
      check_(runtime.allocate(memory_, size), "cudaMalloc", Lane::Compute, activity);
    } else {
      check_(runtime.allocate_pinned(memory_, size), "cudaHostAlloc", Lane::HostCompute, activity);
    }
  }
  auto arena = std::make_unique<FixedArena>(memory_, bytes);
  arena_ = arena.get();
  blocks_ = std::make_shared<TierMemory>(TierSettings{.tier = tier,
                                                      .limit_bytes = limit_bytes + exact_bytes,
                                                      .granularity = granularity,
                                                      .spoil = std::move(spoil)},
                                         std::move(arena));
}

CudaTier::~CudaTier() {
  std::vector<std::string> nobody_asks;
  destroy(nobody_asks);
}

void CudaTier::destroy(std::vector<std::string>& failures) {
  if (memory_ == nullptr) return;
  CudaRuntime& runtime = check_.runtime();
  const bool on_device = tier_ == Tier::Device;
  const CudaStatus status = on_device ? runtime.free(memory_) : runtime.free_pinned(memory_);
  memory_ = nullptr;
  if (status != CudaStatus::Success) {
    failures.push_back(
        fmt::format("{}: {}", on_device ? "cudaFree" : "cudaFreeHost", runtime.error_text(status)));
  }
}

}  // namespace garonne::device
