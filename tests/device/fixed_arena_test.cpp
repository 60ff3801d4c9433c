// Blocks of memory that nobody may touch while it is cut up: against a model of the free ranges.
#include "device/fixed_arena.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "base/error.hpp"
#include "device/tier_memory.hpp"

namespace garonne::device {
namespace {

// An address where there is no memory: a look at it would end the test.
char* nowhere() {
  return reinterpret_cast<char*>(std::uintptr_t{1} << 20);
}

// One cell for each 64 bytes, and all holes looked at in turn.
class Model {
 public:
  explicit Model(std::int64_t bytes) : taken_(static_cast<std::size_t>(bytes / 64), false) {}

  // The begin of the shortest hole that is long enough, the first of several; -1 where none is.
  std::int64_t take(std::int64_t bytes) {
    const std::size_t cells = static_cast<std::size_t>(bytes / 64);
    std::size_t best = 0;
    std::size_t best_length = 0;
    for (std::size_t begin = 0; begin < taken_.size();) {
      std::size_t end = begin;
      while (end < taken_.size() && !taken_[end]) ++end;
      const std::size_t length = end - begin;
      if (length >= cells && (best_length == 0 || length < best_length)) {
        best = begin;
        best_length = length;
      }
      begin = end + 1;
    }
    if (best_length == 0) return -1;
    mark(best, cells, true);
    return static_cast<std::int64_t>(best) * 64;
  }
  void give(std::int64_t begin, std::int64_t bytes) {
    mark(static_cast<std::size_t>(begin / 64), static_cast<std::size_t>(bytes / 64), false);
  }

 private:
  void mark(std::size_t begin, std::size_t cells, bool taken) {
    for (std::size_t cell = begin; cell < begin + cells; ++cell) taken_[cell] = taken;
  }
  std::vector<bool> taken_;
};

TEST(FixedArena, GivesTheShortestHoleAndNoneThatIsNotThere) {
  constexpr std::int64_t bytes = 64 * 400;
  for (unsigned seed = 0; seed < 10; ++seed) {
    FixedArena arena(nowhere(), bytes);
    Model model(bytes);
    std::mt19937 random(seed);
    std::map<char*, std::int64_t> held;
    std::int64_t reach = 0;
    int refused = 0;
    for (int turn = 0; turn < 2000; ++turn) {
      if (!held.empty() && random() % 9 < 4) {
        const auto victim =
            std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
        arena.release(victim->first, victim->second);
        model.give(victim->first - nowhere(), victim->second);
        held.erase(victim);
        continue;
      }
      const std::int64_t size = 64 * static_cast<std::int64_t>(1 + random() % 30);
      char* const block = static_cast<char*>(arena.allocate(size));
      const std::int64_t expected = model.take(size);
      ASSERT_EQ(block == nullptr ? -1 : block - nowhere(), expected);
      if (block == nullptr) {
        ++refused;
        continue;
      }
      held.emplace(block, size);
      reach = std::max(reach, expected + size);
    }
    EXPECT_EQ(arena.reach_bytes(), reach);
    EXPECT_GT(refused, 10);
  }
}

TEST(FixedArena, ReachesNoFurtherWhenAStepIsDoneAgain) {
  FixedArena arena(nowhere(), 1 << 20);
  const auto step = [&arena] {
    void* const first = arena.allocate(6400);
    void* const second = arena.allocate(640);
    arena.release(first, 6400);
    void* const third = arena.allocate(3200);
    arena.release(second, 640);
    arena.release(third, 3200);
    return arena.reach_bytes();
  };
  const std::int64_t once = step();
  for (int turn = 0; turn < 5; ++turn) EXPECT_EQ(step(), once);
}

TEST(FixedArena, KnowsWhatIsItsOwn) {
  const FixedArena arena(nowhere(), 6400);
  EXPECT_TRUE(arena.contains(nowhere(), 6400));
  EXPECT_TRUE(arena.contains(nowhere() + 6399, 1));
  EXPECT_FALSE(arena.contains(nowhere() + 1, 6400));
  EXPECT_FALSE(arena.contains(nowhere() - 1, 1));
  EXPECT_FALSE(arena.contains(nowhere() + 6401, 0));
}

TEST(FixedArena, ATierWithoutALongEnoughHoleSaysSo) {
  TierMemory memory({.tier = Tier::Device, .limit_bytes = 4096, .granularity = 512},
                    std::make_unique<FixedArena>(nowhere(), 4096));
  std::vector<Span> blocks;
  for (int block = 0; block < 8; ++block) blocks.push_back(memory.allocate(512, "block"));
  for (const std::size_t block : {0U, 2U, 4U}) memory.release(blocks[block]);
  try {
    memory.allocate(1024, "backward layer 2");
    ADD_FAILURE() << "no refusal";
  } catch (const RefusedError& error) {
    const std::string text = error.what();
    for (const char* part : {"backward layer 2", "device", "4096", "2560", "1024"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  EXPECT_EQ(memory.live_bytes(), 5 * 512) << "what was refused is not counted";
  EXPECT_EQ(memory.allocate(512, "one that fits").data, blocks[0].data);
}

}  // namespace
}  // namespace garonne::device
