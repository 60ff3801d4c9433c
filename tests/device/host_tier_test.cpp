// The host as a tier below a device: a limit, a room, and blocks where they were found out to be.
#include "device/host_tier.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "device/tier_places.hpp"

namespace garonne::device {
namespace {

constexpr std::int64_t page = host_allocation_granularity;

TEST(HostTier, HandsOutNoMoreThanItsLimit) {
  HostTier tier({.limit_bytes = 3 * page, .room_bytes = 3 * page});
  TierMemory& memory = tier.memory();
  EXPECT_EQ(memory.tier(), Tier::Host);
  EXPECT_EQ(memory.granularity(), page);
  const Span one = memory.allocate(1, "one");
  const Span two = memory.allocate(2 * page, "two");
  EXPECT_EQ(memory.live_bytes(), 3 * page);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(two.data) % static_cast<std::uintptr_t>(page), 0U);
  EXPECT_THROW(memory.allocate(1, "three"), RefusedError);
  memory.release(one);
  memory.release(memory.allocate(page, "three"));
  memory.release(two);
  EXPECT_EQ(memory.live_bytes(), 0);
}

// Blocks would go beyond: the memory there is somebody else's.
TEST(HostTier, HasNothingBeyondItsRoom) {
  std::vector<std::byte> all(static_cast<std::size_t>(8 * page));
  void* begin = all.data();
  std::size_t space = all.size();
  ASSERT_NE(std::align(page, 6 * page, begin, space), nullptr);
  auto* const data = static_cast<std::byte*>(begin);
  HostTier tier(
      {.limit_bytes = 5 * page, .room_bytes = 3 * page, .memory = {Tier::Host, data, 3 * page}});
  const Span first = tier.memory().allocate(2 * page, "first");
  EXPECT_EQ(first.data, data);
  EXPECT_THROW(tier.memory().allocate(2 * page, "second"), RefusedError);
  EXPECT_EQ(tier.memory().live_bytes(), 2 * page);
  EXPECT_EQ(tier.memory().allocate(page, "third").data, data + 2 * page);
  EXPECT_THROW(
      HostTier({.limit_bytes = page, .room_bytes = 2 * page, .memory = {Tier::Host, data, page}}),
      InternalError);
}

// What is asked for in one order has one set of places, however it was found out.
TEST(HostTier, ReachesAsFarAsItsPlacesSaid) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const auto run = [seed](const auto& allocate, const auto& release) {
      std::mt19937 random(seed);
      std::vector<std::pair<void*, std::int64_t>> live;
      for (int k = 0; k < 200; ++k) {
        if (live.size() > 8 || (!live.empty() && random() % 2 == 0)) {
          const std::size_t which = random() % live.size();
          release(live[which].first, live[which].second);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
        } else {
          const std::int64_t bytes = page * (1 + static_cast<std::int64_t>(random() % 7));
          live.emplace_back(allocate(bytes), bytes);
          ASSERT_NE(live.back().first, nullptr);
        }
      }
    };
    const std::int64_t limit = 70 * page;
    const auto places = tier_places(limit);
    run([&](std::int64_t bytes) { return places->allocate(bytes); },
        [&](void* block, std::int64_t bytes) { places->release(block, bytes); });
    HostTier tier({.limit_bytes = limit, .room_bytes = places->reach_bytes()});
    run(
        [&](std::int64_t bytes) -> void* {
          const Span block = tier.memory().allocate(bytes, "block");
          std::memset(block.data, 1, static_cast<std::size_t>(block.bytes));
          return block.data;
        },
        [&](void* block, std::int64_t bytes) {
          tier.memory().release({Tier::Host, static_cast<std::byte*>(block), bytes});
        });
  }
}

TEST(HostTier, SpoilsWhatNobodyWrote) {
  HostTier tier({.limit_bytes = page, .room_bytes = page, .spoils = true});
  const Span block = tier.memory().allocate(page, "block");
  float number = 0;
  std::memcpy(&number, block.data, sizeof number);
  EXPECT_NE(number, number);
}

}  // namespace
}  // namespace garonne::device
