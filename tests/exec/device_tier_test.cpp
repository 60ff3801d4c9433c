// The counting allocator: what it counts, what it keeps, what it refuses.
#include "exec/device_tier.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace garonne::exec {
namespace {

at::Tensor block(std::int64_t bytes) {
  return at::empty({bytes}, at::kByte);
}

TEST(DeviceTier, CountsRoundedAllocationsAndTheirPeak) {
  const DeviceTier tier(100000);
  const DeviceScope scope(tier);
  EXPECT_EQ(tier.limit_bytes(), 100000);
  at::Tensor a = block(1);
  EXPECT_EQ(tier.live_bytes(), 64);
  at::Tensor b = block(65);
  EXPECT_EQ(tier.live_bytes(), 64 + 128);
  const at::Tensor view = b.narrow(0, 3, 5);
  EXPECT_EQ(tier.live_bytes(), 64 + 128) << "a view is no storage";
  b.reset();
  EXPECT_EQ(tier.live_bytes(), 64 + 128) << "its view keeps it";
  a.reset();
  EXPECT_EQ(tier.live_bytes(), 128);
  EXPECT_EQ(tier.peak_bytes(), 64 + 128);
}

TEST(DeviceTier, PeakSinceTheLastReset) {
  DeviceTier tier(100000);
  const DeviceScope scope(tier);
  block(10000);
  const at::Tensor kept = block(640);
  EXPECT_EQ(tier.peak_bytes(), 10048);
  tier.reset_peak();
  EXPECT_EQ(tier.peak_bytes(), 640);
  block(64);
  EXPECT_EQ(tier.peak_bytes(), 704);
}

TEST(DeviceTier, NothingTakesNothing) {
  const DeviceTier tier(0);
  const DeviceScope scope(tier);
  EXPECT_NO_THROW(block(0));
  EXPECT_EQ(tier.live_bytes(), 0);
  EXPECT_THROW(block(1), RefusedError);
}

TEST(DeviceTier, RefusesTheByteTooMuchAndSaysWhoAsked) {
  DeviceTier tier(1024);
  const DeviceScope scope(tier);
  const at::Tensor most = block(960);
  tier.set_activity("backward layer.2.qkv (micro-batch 1)");
  try {
    block(65);
    ADD_FAILURE() << "no refusal";
  } catch (const RefusedError& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ExitCode::Refused);
    for (const char* part : {"backward layer.2.qkv (micro-batch 1)", "128", "1088", "1024"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  EXPECT_EQ(tier.live_bytes(), 960) << "what was refused is not counted";
  EXPECT_NO_THROW(block(64));
  tier.set_activity("");
  try {
    block(65);
    ADD_FAILURE() << "no refusal";
  } catch (const RefusedError& error) {
    EXPECT_NE(std::string(error.what()).find("outside any instruction"), std::string::npos)
        << error.what();
  }
}

TEST(DeviceTier, HandsOutFreedBlocksAgain) {
  const DeviceTier tier(1 << 20);
  const DeviceScope scope(tier);
  std::set<const void*> first;
  {
    const at::Tensor a = block(4096);
    const at::Tensor b = block(4096);
    first = {a.data_ptr(), b.data_ptr()};
  }
  EXPECT_EQ(tier.live_bytes(), 0);
  const at::Tensor c = block(4090);
  const at::Tensor d = block(4096);
  EXPECT_EQ((std::set<const void*>{c.data_ptr(), d.data_ptr()}), first)
      << "of equal rounded size: reused";
  const at::Tensor e = block(4096);
  EXPECT_EQ(first.count(e.data_ptr()), 0U) << "handed out twice";
  EXPECT_EQ(tier.live_bytes(), 3 * 4096);
}

// What nobody wrote and what was freed is NaN, in whole granules.
TEST(DeviceTier, OfAnEmulatedDeviceSpoilsItsBlocks) {
  DeviceTier tier(1 << 20, DeviceKind::Emulated);
  const DeviceScope scope(tier);
  const auto numbers = [](const float* values, std::int64_t n) {
    return std::count_if(values, values + n, [](float value) { return !std::isnan(value); });
  };
  at::Tensor kept = at::empty({1000}, at::kFloat);
  at::Tensor freed = at::empty({1000}, at::kFloat);
  const float* const values = freed.const_data_ptr<float>();
  EXPECT_EQ(numbers(values, 1000), 0) << "before anybody wrote";
  kept.fill_(1);
  freed.fill_(2);
  EXPECT_EQ(numbers(values, 1000), 1000);
  freed.reset();
  // The arena keeps the page: its neighbour lives.
  EXPECT_EQ(numbers(values, 1000), 0) << "after it was freed";
  EXPECT_EQ(numbers(kept.const_data_ptr<float>(), 1000), 1000) << "of others";
  EXPECT_EQ(tier.live_bytes(), 4032);
}

// Pages of freed blocks stay, but never more than the limit and what blocks share at their ends.
TEST(DeviceTier, HoldsNoMorePagesThanTheLimit) {
  constexpr std::int64_t limit = 8 << 20;
  const DeviceTier tier(limit);
  const DeviceScope scope(tier);
  block(limit / 2).fill_(1);
  EXPECT_EQ(tier.live_bytes(), 0);
  EXPECT_GE(tier.resident_bytes(), limit / 2) << "the next block finds them warm";
  at::Tensor large;
  EXPECT_NO_THROW(large = block(limit)) << "what is kept must not stand in the way";
  EXPECT_EQ(tier.live_bytes(), limit);
  large.reset();
  // Blocks of all sizes in the way of each other, each with a pattern of its own.
  std::mt19937 random(1);
  std::vector<std::pair<at::Tensor, int>> held;
  std::int64_t bytes = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    const std::int64_t size = (std::int64_t{64} << static_cast<int>(random() % 16)) *
                              static_cast<std::int64_t>(1 + random() % 3);
    while (bytes + size > limit) {
      const std::size_t victim = random() % held.size();
      const auto& [tensor, pattern] = held[victim];
      const auto* begin = tensor.const_data_ptr<std::uint8_t>();
      EXPECT_EQ(std::count(begin, begin + tensor.numel(), pattern), tensor.numel())
          << "another block wrote into it";
      bytes -= tensor.numel();
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    held.emplace_back(block(size).fill_(turn % 251), turn % 251);
    bytes += size;
    const auto blocks = static_cast<std::int64_t>(held.size());
    EXPECT_LE(tier.resident_bytes(), limit + limit / 16 + 2 * 4096 * (blocks + 2));
  }
  EXPECT_LE(tier.live_bytes(), limit);
  held.clear();
  EXPECT_EQ(tier.live_bytes(), 0);
}

TEST(DeviceTier, OtherThreadsAndThePlaceOutsideAllocateFromTheHost) {
  const DeviceTier tier(1024);
  const at::Tensor outside = block(100000);
  EXPECT_EQ(tier.live_bytes(), 0);
  {
    const DeviceScope scope(tier);
    at::Tensor elsewhere;
    std::thread([&] { elsewhere = block(100000); }).join();
    EXPECT_EQ(elsewhere.numel(), 100000);
    EXPECT_EQ(tier.live_bytes(), 0);
    at::Tensor here = block(640);
    EXPECT_EQ(tier.live_bytes(), 640);
    // Released on another thread than it was made on.
    std::thread([moved = std::move(here)]() mutable { moved.reset(); }).join();
    EXPECT_EQ(tier.live_bytes(), 0);
  }
  EXPECT_NO_THROW(block(100000));
}

TEST(DeviceTier, ScopesNest) {
  const DeviceTier outer(10000);
  const DeviceTier inner(10000);
  const DeviceScope first(outer);
  at::Tensor a;
  {
    const DeviceScope second(inner);
    a = block(128);
    EXPECT_EQ(inner.live_bytes(), 128);
    EXPECT_EQ(outer.live_bytes(), 0);
  }
  const at::Tensor b = block(64);
  EXPECT_EQ(outer.live_bytes(), 64);
  EXPECT_EQ(inner.live_bytes(), 128);
  a.reset();
  EXPECT_EQ(inner.live_bytes(), 0) << "goes back where it came from";
}

TEST(DeviceTier, ATensorMayOutliveItsTier) {
  at::Tensor survivor;
  {
    auto tier = std::make_unique<DeviceTier>(4096);
    const DeviceScope scope(*tier);
    block(640);
    survivor = block(640);
  }
  survivor.fill_(7);
  EXPECT_EQ(survivor[639].item<int>(), 7);
  survivor.reset();
}

}  // namespace
}  // namespace garonne::exec
