// The arena: blocks that are apart, aligned and used again, and pages that are given back.
#include "device/arena.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace garonne::device {
namespace {

struct Block {
  unsigned char* data = nullptr;
  std::int64_t bytes = 0;
  unsigned char pattern = 0;

  bool intact() const { return std::count(data, data + bytes, pattern) == bytes; }
};

// Blocks of all sizes in each other's way, each full of a pattern of its own.
TEST(Arena, BlocksAreApartAlignedAndKeepTheirContents) {
  for (const std::int64_t unit : {Arena::alignment, std::int64_t{512}, std::int64_t{4096}}) {
    std::mt19937 random(static_cast<unsigned>(unit));
    constexpr std::int64_t limit = 4 << 20;
    Arena arena(limit);
    std::vector<Block> held;
    std::int64_t bytes = 0;
    const auto release = [&](std::size_t victim) {
      ASSERT_TRUE(held[victim].intact()) << "another block wrote into it";
      arena.release(held[victim].data, held[victim].bytes);
      bytes -= held[victim].bytes;
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
    };
    for (int turn = 0; turn < 1500; ++turn) {
      const std::int64_t size = unit * static_cast<std::int64_t>(1 + random() % 40);
      while (bytes + size > limit) release(random() % held.size());
      Block block{static_cast<unsigned char*>(arena.allocate(size)), size,
                  static_cast<unsigned char>(turn % 251)};
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block.data) % static_cast<std::uintptr_t>(unit),
                0U);
      std::fill(block.data, block.data + size, block.pattern);
      held.push_back(block);
      bytes += size;
      const auto ends = static_cast<std::int64_t>(held.size()) + 2;
      ASSERT_LE(arena.resident_bytes(), limit + 2 * sysconf(_SC_PAGESIZE) * ends);
    }
    while (!held.empty()) release(held.size() - 1);
  }
}

TEST(Arena, TakesTheSmallestFreeRangeThatIsEnough) {
  Arena arena(1 << 20);
  void* large = arena.allocate(4096);
  void* between = arena.allocate(64);
  void* small = arena.allocate(640);
  void* last = arena.allocate(64);
  arena.release(large, 4096);
  arena.release(small, 640);
  EXPECT_EQ(arena.allocate(640), small);
  EXPECT_EQ(arena.allocate(4096), large);
  EXPECT_NE(between, last);
}

TEST(Arena, NeighboursThatAreFreeAreOneRange) {
  Arena arena(1 << 20);
  char* first = static_cast<char*>(arena.allocate(640));
  void* second = arena.allocate(640);
  void* third = arena.allocate(640);
  void* last = arena.allocate(64);
  arena.release(first, 640);
  arena.release(third, 640);
  arena.release(second, 640);
  EXPECT_EQ(arena.allocate(3 * 640), first);
  EXPECT_EQ(last, first + 3 * 640);
}

// What is beyond the limit goes back to the system, and comes again as zeros.
TEST(Arena, GivesPagesOfFreeRangesBack) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  Arena arena(16 * page);
  auto* large = static_cast<unsigned char*>(arena.allocate(16 * page));
  void* last = arena.allocate(Arena::alignment);
  std::fill(large, large + 16 * page, static_cast<unsigned char>(7));
  arena.release(large, 16 * page);
  EXPECT_EQ(arena.resident_bytes(), 17 * page)
      << "pages stay while they are no more than the limit";
  void* larger = arena.allocate(17 * page);
  EXPECT_LE(arena.resident_bytes(), 18 * page);
  EXPECT_EQ(arena.allocate(16 * page), large);
  EXPECT_EQ(std::count(large, large + 16 * page, 0), 16 * page) << "these were given back";
  EXPECT_NE(larger, last);
}

}  // namespace
}  // namespace garonne::device
