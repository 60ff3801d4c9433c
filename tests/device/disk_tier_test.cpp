// Blocks on the disk: what is written is read, whatever its size and alignment, and is counted.
#include "device/disk_tier.hpp"
#include "device/tier_places.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/disk_probe.hpp"

namespace garonne::device {
namespace {

namespace fs = std::filesystem;

// Where the tests are built: on a disk, which the folder for temporary files may not be.
class DiskTiers : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::current_path() / "disk-tier-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder_;
};

std::vector<std::byte> any_bytes(std::int64_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFFU);
  return bytes;
}

// Beside memory to which the same is done; other blocks stay as they are.
TEST_F(DiskTiers, PartsAreShownAndFilled) {
  DiskTier tier({.folder = folder_, .limit_bytes = std::int64_t{8} << 20});
  std::mt19937_64 random(3);
  const std::int64_t bytes = 3 * disk_staging_piece_bytes + 4 * 1234;
  const Span before = tier.memory().allocate(4096, "before");
  const Span block = tier.memory().allocate(bytes, "a block");
  const Span behind = tier.memory().allocate(4096, "behind");
  const std::vector<std::byte> other = any_bytes(4096, random);
  for (const Span one : {before, behind}) tier.write(one, other.data(), 4096);
  const auto shown = [&](Span of, std::int64_t first, std::int64_t count) {
    std::vector<std::byte> all;
    tier.show(of, first, count, [&](std::span<const std::byte> piece) {
      EXPECT_LE(piece.size(), static_cast<std::size_t>(disk_staging_piece_bytes));
      EXPECT_EQ(piece.size() % 4, 0U);
      all.insert(all.end(), piece.begin(), piece.end());
    });
    return all;
  };
  std::vector<std::byte> wanted(static_cast<std::size_t>(bytes));
  EXPECT_EQ(shown(block, 0, bytes), wanted) << "a new block is zero";
  for (int k = 0; k < 40; ++k) {
    const std::int64_t first = static_cast<std::int64_t>(random() % (bytes / 4)) * 4;
    const std::int64_t count =
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>((bytes - first) / 4 + 1)) *
        4;
    const std::vector<std::byte> some = any_bytes(count, random);
    tier.fill(block, first, count, [&](std::int64_t at, std::span<std::byte> to) {
      std::copy_n(some.begin() + at, to.size(), to.begin());
    });
    std::copy(some.begin(), some.end(), wanted.begin() + first);
    EXPECT_EQ(shown(block, first, count), some);
  }
  EXPECT_EQ(shown(block, 0, bytes), wanted);
  for (const Span one : {before, behind}) EXPECT_EQ(shown(one, 0, 4096), other);
  EXPECT_THROW(shown(block, 4, bytes), InternalError);
}

TEST_F(DiskTiers, GiveBackWhatTheyWereGiven) {
  DiskTier tier({.folder = folder_, .limit_bytes = std::int64_t{48} << 20});
  std::mt19937_64 random(1);
  struct Kept {
    Span block;
    std::vector<std::byte> contents;
  };
  std::vector<Kept> kept;
  std::int64_t live = 0;
  for (const std::int64_t bytes : {1, 4095, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1, 5 << 20}) {
    kept.push_back({tier.memory().allocate(bytes, "a block"), any_bytes(bytes, random)});
    tier.write(kept.back().block, kept.back().contents.data(), bytes);
    live += round_up(bytes, tier.memory().granularity());
    EXPECT_EQ(tier.memory().live_bytes(), live);
  }
  // Over again, from memory that is aligned and from memory that is not.
  const std::int64_t most = 8 << 20;
  void* aligned = nullptr;
  ASSERT_EQ(posix_memalign(&aligned, 4096, static_cast<std::size_t>(most)), 0);
  auto* const memory = static_cast<std::byte*>(aligned);
  for (std::size_t k = 0; k < kept.size(); k += 2) {
    const auto bytes = static_cast<std::int64_t>(kept[k].contents.size());
    kept[k].contents = any_bytes(bytes, random);
    const std::ptrdiff_t shift = k % 4 == 0 ? 0 : 64;
    std::copy(kept[k].contents.begin(), kept[k].contents.end(), memory + shift);
    tier.write(kept[k].block, memory + shift, bytes);
  }
  for (const Kept& one : kept) {
    const auto bytes = static_cast<std::int64_t>(one.contents.size());
    for (const std::ptrdiff_t shift : {0, 64}) {
      tier.read(one.block, memory + shift, bytes);
      EXPECT_TRUE(std::equal(one.contents.begin(), one.contents.end(), memory + shift)) << bytes;
    }
  }
  for (const Kept& one : kept) tier.memory().release(one.block);
  EXPECT_EQ(tier.memory().live_bytes(), 0);
  std::free(aligned);
}

TEST_F(DiskTiers, HaveAHardLimitAndLeaveNoFile) {
  DiskTier tier({.folder = folder_, .limit_bytes = 1 << 20});
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_THROW(tier.memory().allocate((1 << 20) + 1, "too much"), RefusedError);
  const Span block = tier.memory().allocate(1 << 20, "all of it");
  EXPECT_THROW(tier.memory().allocate(1, "one byte more"), RefusedError);
  std::vector<std::byte> more((1 << 20) + 1);
  EXPECT_THROW(tier.write(block, more.data(), (1 << 20) + 1), InternalError);
  EXPECT_THROW(tier.read(block, more.data(), (1 << 20) + 1), InternalError);
  tier.memory().release(block);
}

TEST_F(DiskTiers, ReadAndWriteBesideEachOther) {
  DiskTier tier({.folder = folder_, .limit_bytes = std::int64_t{32} << 20});
  std::mt19937_64 random(2);
  constexpr std::int64_t bytes = (3 << 20) + 5;
  const std::vector<std::byte> first = any_bytes(bytes, random);
  const std::vector<std::byte> second = any_bytes(bytes, random);
  const Span a = tier.memory().allocate(bytes, "a");
  const Span b = tier.memory().allocate(bytes, "b");
  tier.write(a, first.data(), bytes);
  std::vector<std::byte> found(first.size());
  for (int turn = 0; turn < 8; ++turn) {
    std::fill(found.begin(), found.end(), std::byte{0});
    std::thread writer([&] { tier.write(b, second.data(), bytes); });
    tier.read(a, found.data(), bytes);
    writer.join();
    EXPECT_EQ(found, first);
  }
  tier.read(b, found.data(), bytes);
  EXPECT_EQ(found, second);
}

TEST_F(DiskTiers, AreProbedWhileTheThreadDoesSomethingElse) {
  int turns = 0;
  const DiskSpeed speed = probe_disk(folder_, 16 << 20, 0.05, [&] {
    ++turns;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_GT(turns, 3);
  // Faster than a floppy, slower than memory will ever be.
  for (const double rate : {speed.write, speed.read}) {
    EXPECT_GT(rate, 1e4);
    EXPECT_LT(rate, 1e13);
  }
  EXPECT_GT(speed.latency_seconds, 0);
  EXPECT_LT(speed.latency_seconds, 10);
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_THROW(probe_disk(folder_, 16 << 20, 0.05, [] { throw IoError("beside", "fails"); }),
               IoError);
  EXPECT_THROW(probe_disk(folder_ + "/nowhere", 16 << 20, 0.05, [] {}), IoError);
  EXPECT_TRUE(fs::is_empty(folder_));
}

// Beyond the limit where holes between blocks ask for it.
TEST_F(DiskTiers, HaveAFileAsLongAsTheirPlacesReach) {
  constexpr std::int64_t unit = 1 << 16;
  const auto reach = [&](DiskTier* tier) {
    const auto places = tier_places(4 * unit);
    std::vector<void*> blocks;
    std::vector<Span> spans;
    for (int k = 0; k < 4; ++k) {
      blocks.push_back(places->allocate(unit));
      if (tier != nullptr) spans.push_back(tier->memory().allocate(unit, "a block"));
    }
    for (const std::size_t k : {0U, 2U}) {
      places->release(blocks[k], unit);
      if (tier != nullptr) tier->memory().release(spans[k]);
    }
    places->allocate(2 * unit);
    if (tier != nullptr) {
      const Span last = tier->memory().allocate(2 * unit, "what fits in no hole");
      const std::vector<std::byte> bytes(2 * unit, std::byte{7});
      tier->write(last, bytes.data(), 2 * unit);
      tier->memory().release(last);
      for (const std::size_t k : {1U, 3U}) tier->memory().release(spans[k]);
    }
    return places->reach_bytes();
  };
  EXPECT_EQ(reach(nullptr), 6 * unit);
  DiskTier tier({.folder = folder_, .limit_bytes = 4 * unit, .file_bytes = 6 * unit});
  EXPECT_EQ(tier.file_bytes(), 6 * unit);
  for (int step = 0; step < 3; ++step) EXPECT_EQ(reach(&tier), 6 * unit);
}

}  // namespace
}  // namespace garonne::device
