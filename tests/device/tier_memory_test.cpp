// Memory of a tier: what is counted, what is refused, and what happens to blocks on their way.
#include "device/tier_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace garonne::device {
namespace {

TEST(TierMemory, CountsRoundedBytesAndTheirPeak) {
  TierMemory memory({.tier = Tier::Host, .limit_bytes = 1 << 20});
  EXPECT_EQ(memory.tier(), Tier::Host);
  EXPECT_EQ(memory.granularity(), 4096);
  const Span one = memory.allocate(1, "one");
  EXPECT_EQ(one.bytes, 1);
  EXPECT_EQ(one.tier, Tier::Host);
  EXPECT_EQ(memory.live_bytes(), 4096);
  const Span two = memory.allocate(4097, "two");
  EXPECT_EQ(memory.live_bytes(), 3 * 4096);
  memory.release(two);
  EXPECT_EQ(memory.live_bytes(), 4096);
  EXPECT_EQ(memory.peak_bytes(), 3 * 4096);
  memory.reset_peak();
  EXPECT_EQ(memory.peak_bytes(), 4096);
  memory.release(one);
  EXPECT_EQ(memory.live_bytes(), 0);
}

TEST(TierMemory, RefusesTheByteTooMuchAndSaysWhoAsked) {
  TierMemory memory({.tier = Tier::Host, .limit_bytes = 3 * 4096});
  const Span most = memory.allocate(2 * 4096, "most of it");
  for (const std::int64_t bytes :
       {std::int64_t{4097}, std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
    try {
      memory.allocate(bytes, "copy-out value 3 (micro-batch 1)");
      ADD_FAILURE() << "no refusal";
    } catch (const RefusedError& error) {
      const std::string text = error.what();
      for (const char* part : {"copy-out value 3 (micro-batch 1)", "host", "8192", "12288"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
      }
    }
    EXPECT_EQ(memory.live_bytes(), 2 * 4096) << "what was refused is not counted";
  }
  EXPECT_NO_THROW(memory.release(memory.allocate(4096, "the rest")));
  memory.release(most);
}

TEST(TierMemory, NothingTakesNothing) {
  TierMemory memory({.limit_bytes = 0});
  const Span nothing = memory.allocate(0, "nothing");
  EXPECT_EQ(nothing.data, nullptr);
  memory.release(nothing);
  EXPECT_THROW(memory.allocate(1, "something"), RefusedError);
  EXPECT_THROW(memory.allocate(-1, "less"), InternalError);
}

TEST(TierMemory, KnowsItsBlocks) {
  TierMemory memory({.tier = Tier::Host, .limit_bytes = 1 << 20});
  const Span block = memory.allocate(100, "block");
  Span inside = block;
  inside.data += 64;
  EXPECT_THROW(memory.release(inside), InternalError);
  Span elsewhere = block;
  elsewhere.tier = Tier::Device;
  EXPECT_THROW(memory.release(elsewhere), InternalError);
  memory.release(block);
  EXPECT_THROW(memory.release(block), InternalError) << "given back twice";
  EXPECT_EQ(memory.live_bytes(), 0);
}

TEST(TierMemory, RefusesGranularitiesThatAddressesCannotHave) {
  for (const std::int64_t granularity : {0, 32, 96, 8192}) {
    EXPECT_THROW(TierMemory({.limit_bytes = 1 << 20, .granularity = granularity}), InternalError)
        << granularity;
  }
}

// Against a model that has a map of blocks and nothing else.
TEST(TierMemory, RandomBlocksAreCountedToTheByte) {
  for (const std::int64_t granularity : {64, 512, 4096}) {
    constexpr std::int64_t limit = 1 << 20;
    TierMemory memory({.limit_bytes = limit, .granularity = granularity});
    std::mt19937 random(static_cast<unsigned>(granularity));
    std::map<std::uintptr_t, Span> held;
    std::int64_t live = 0;
    std::int64_t peak = 0;
    int refused = 0;
    for (int turn = 0; turn < 3000; ++turn) {
      if (!held.empty() && random() % 5 < 2) {
        auto victim = std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
        live -= (victim->second.bytes + granularity - 1) / granularity * granularity;
        memory.release(victim->second);
        held.erase(victim);
        continue;
      }
      const auto bytes = static_cast<std::int64_t>(1 + random() % 30000);
      const std::int64_t counted = (bytes + granularity - 1) / granularity * granularity;
      if (live + counted > limit) {
        EXPECT_THROW(memory.allocate(bytes, "too much"), RefusedError);
        ++refused;
        continue;
      }
      const Span block = memory.allocate(bytes, "block");
      const auto address = reinterpret_cast<std::uintptr_t>(block.data);
      ASSERT_EQ(address % static_cast<std::uintptr_t>(granularity), 0U);
      const auto next = held.lower_bound(address);
      if (next != held.end()) {
        ASSERT_LE(address + static_cast<std::uintptr_t>(bytes), next->first);
      }
      if (next != held.begin()) {
        const auto& [begin, before] = *std::prev(next);
        ASSERT_LE(begin + static_cast<std::uintptr_t>(before.bytes), address);
      }
      held.emplace(address, block);
      live += counted;
      peak = std::max(peak, live);
      ASSERT_EQ(memory.live_bytes(), live);
      ASSERT_EQ(memory.peak_bytes(), peak);
    }
    EXPECT_GT(refused, 0);
  }
}

TEST(TierMemory, SpoilsWholeBlocksWhenTheyComeAndGo) {
  std::vector<Span> spoiled;
  TierMemory memory(
      {.tier = Tier::Device, .limit_bytes = 1 << 20, .granularity = 64, .spoil = [&](Span block) {
         spoiled.push_back(block);
       }});
  const Span block = memory.allocate(100, "block");
  ASSERT_EQ(spoiled.size(), 1U);
  EXPECT_EQ(spoiled[0].data, block.data);
  EXPECT_EQ(spoiled[0].bytes, 128);
  memory.release(block);
  ASSERT_EQ(spoiled.size(), 2U);
  EXPECT_EQ(spoiled[1].data, block.data);
  EXPECT_EQ(spoiled[1].bytes, 128);
}

TEST(TierMemory, ServesSeveralThreads) {
  TierMemory memory({.limit_bytes = 1 << 20, .granularity = 64});
  std::atomic<int> damaged = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&memory, &damaged, number] {
      std::mt19937 random(static_cast<unsigned>(number));
      for (int turn = 0; turn < 500; ++turn) {
        const Span block = memory.allocate(static_cast<std::int64_t>(1 + random() % 5000), "block");
        std::fill(block.data, block.data + block.bytes, static_cast<std::byte>(number));
        std::this_thread::yield();
        for (std::int64_t i = 0; i < block.bytes; ++i) {
          damaged += block.data[i] != static_cast<std::byte>(number);
        }
        memory.release(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(memory.live_bytes(), 0);
}

}  // namespace
}  // namespace garonne::device
