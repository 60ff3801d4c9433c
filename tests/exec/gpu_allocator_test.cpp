// What the tensor library's allocator of a GPU asks for: blocks of the tier whose scope is open, at
// addresses that no host can touch.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/fixed_arena.hpp"
#include "device/tier_memory.hpp"
#include "exec/device_tier.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t limit = 8 * cuda_allocation_granularity;

// An address where there is no memory, another for each `number`.
std::byte* nowhere(int number) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(number) << 20);
}

std::shared_ptr<device::TierMemory> memory_at(int number) {
  return std::make_shared<device::TierMemory>(
      device::TierSettings{
          .tier = Tier::Device, .limit_bytes = limit, .granularity = cuda_allocation_granularity},
      std::make_unique<device::FixedArena>(nowhere(number), limit));
}

DeviceTier tier_of(const std::shared_ptr<device::TierMemory>& memory) {
  return {memory, DeviceKind::Cuda};
}

bool is_in(const void* block, int number) {
  const auto* const byte = static_cast<const std::byte*>(block);
  return byte >= nowhere(number) && byte < nowhere(number) + limit;
}

TEST(GpuAllocator, TakesExactlyRoundedBytesOfTheTier) {
  const DeviceTier tier = tier_of(memory_at(1));
  const DeviceScope scope(tier);
  EXPECT_EQ(tier.granularity(), cuda_allocation_granularity);
  EXPECT_EQ(tier.limit_bytes(), limit);
  EXPECT_EQ(allocate_on_gpu(0), nullptr);
  release_on_gpu(nullptr);
  EXPECT_EQ(tier.peak_bytes(), 0) << "nothing takes nothing";
  void* const a = allocate_on_gpu(1);
  EXPECT_EQ(tier.live_bytes(), cuda_allocation_granularity);
  void* const b = allocate_on_gpu(cuda_allocation_granularity + 1);
  EXPECT_EQ(tier.live_bytes(), 3 * cuda_allocation_granularity);
  EXPECT_TRUE(is_in(a, 1) && is_in(b, 1));
  EXPECT_NE(a, b);
  release_on_gpu(a);
  EXPECT_EQ(tier.live_bytes(), 2 * cuda_allocation_granularity);
  EXPECT_EQ(tier.peak_bytes(), 3 * cuda_allocation_granularity);
  release_on_gpu(b);
  EXPECT_EQ(tier.live_bytes(), 0);
}

TEST(GpuAllocator, RefusesTheByteTooMuchAndSaysWhoAsked) {
  DeviceTier tier = tier_of(memory_at(1));
  const DeviceScope scope(tier);
  tier.set_activity("backward layer.2.qkv (micro-batch 1)");
  void* const most = allocate_on_gpu(limit - cuda_allocation_granularity);
  try {
    allocate_on_gpu(cuda_allocation_granularity + 1);
    ADD_FAILURE() << "no refusal";
  } catch (const RefusedError& error) {
    const std::string text = error.what();
    for (const std::string& part :
         {std::string("backward layer.2.qkv (micro-batch 1)"), std::string("device"),
          std::to_string(2 * cuda_allocation_granularity), std::to_string(limit)}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  EXPECT_EQ(tier.live_bytes(), limit - cuda_allocation_granularity)
      << "what was refused is not counted";
  void* const last = allocate_on_gpu(cuda_allocation_granularity);
  EXPECT_EQ(tier.live_bytes(), limit);
  release_on_gpu(last);
  release_on_gpu(most);
}

TEST(GpuAllocator, HasNothingOutsideOfScopes) {
  const DeviceTier tier = tier_of(memory_at(1));
  EXPECT_THROW(allocate_on_gpu(1), InternalError);
  EXPECT_EQ(allocate_on_gpu(0), nullptr);
  { const DeviceScope scope(tier); }
  EXPECT_THROW(allocate_on_gpu(1), InternalError) << "after the scope";
  // A scope of the host's tensors is none of a GPU's.
  const DeviceTier host(limit);
  const DeviceScope scope(host);
  EXPECT_THROW(allocate_on_gpu(1), InternalError);
  EXPECT_EQ(host.live_bytes(), 0);
}

TEST(GpuAllocator, TakesBackOnlyWhatItHandedOut) {
  const DeviceTier tier = tier_of(memory_at(1));
  const DeviceScope scope(tier);
  EXPECT_THROW(release_on_gpu(nowhere(1)), InternalError);
  void* const block = allocate_on_gpu(1);
  release_on_gpu(block);
  EXPECT_THROW(release_on_gpu(block), InternalError) << "twice";
  EXPECT_EQ(tier.live_bytes(), 0);
}

// The library has threads of its own, which open no scope.
TEST(GpuAllocator, IsTheSameForAllThreads) {
  const DeviceTier tier = tier_of(memory_at(1));
  const DeviceScope scope(tier);
  void* theirs = nullptr;
  std::thread([&] { theirs = allocate_on_gpu(1); }).join();
  EXPECT_TRUE(is_in(theirs, 1));
  EXPECT_EQ(tier.live_bytes(), cuda_allocation_granularity);
  release_on_gpu(theirs);
  void* const mine = allocate_on_gpu(1);
  std::thread([&] { release_on_gpu(mine); }).join();
  EXPECT_EQ(tier.live_bytes(), 0);
}

TEST(GpuAllocator, ScopesNest) {
  const DeviceTier outer = tier_of(memory_at(1));
  const DeviceTier inner = tier_of(memory_at(2));
  const DeviceScope first(outer);
  void* a = nullptr;
  {
    const DeviceScope second(inner);
    a = allocate_on_gpu(1);
  }
  void* const b = allocate_on_gpu(1);
  EXPECT_TRUE(is_in(a, 2));
  EXPECT_TRUE(is_in(b, 1));
  EXPECT_EQ(inner.live_bytes(), cuda_allocation_granularity);
  release_on_gpu(a);
  EXPECT_EQ(inner.live_bytes(), 0) << "goes back where it came from";
  EXPECT_EQ(outer.live_bytes(), cuda_allocation_granularity);
  release_on_gpu(b);
}

TEST(GpuAllocator, ABlockMayOutliveItsTier) {
  const std::shared_ptr<device::TierMemory> memory = memory_at(1);
  void* block = nullptr;
  {
    const DeviceTier tier = tier_of(memory);
    const DeviceScope scope(tier);
    block = allocate_on_gpu(1);
  }
  EXPECT_EQ(memory->live_bytes(), cuda_allocation_granularity);
  release_on_gpu(block);
  EXPECT_EQ(memory->live_bytes(), 0);
}

// As workspaces of libraries, which stay.
TEST(GpuAllocator, WhatIsSetApartTakesFromTheLimit) {
  DeviceTier tier = tier_of(memory_at(1));
  const DeviceScope scope(tier);
  void* const workspace = allocate_on_gpu(1);
  EXPECT_EQ(tier.set_live_apart(), cuda_allocation_granularity);
  EXPECT_EQ(tier.live_bytes(), 0);
  EXPECT_EQ(tier.peak_bytes(), 0);
  EXPECT_EQ(tier.limit_bytes(), limit - cuda_allocation_granularity);
  EXPECT_THROW(allocate_on_gpu(limit), RefusedError);
  release_on_gpu(allocate_on_gpu(limit - cuda_allocation_granularity));
  EXPECT_EQ(tier.peak_bytes(), limit - cuda_allocation_granularity);
  release_on_gpu(workspace);
}

}  // namespace
}  // namespace garonne::exec
