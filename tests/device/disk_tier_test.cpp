// Blocks on the disk: what is written is read, whatever its size and alignment, and is counted.
#include "device/disk_tier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"

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

TEST_F(DiskTiers, GiveBackWhatTheyWereGiven) {
  DiskTier tier(folder_, std::int64_t{48} << 20);
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
  DiskTier tier(folder_, 1 << 20);
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_THROW(tier.memory().allocate((1 << 20) + 1, "too much"), RefusedError);
  const Span block = tier.memory().allocate(1 << 20, "all of it");
  EXPECT_THROW(tier.memory().allocate(1, "one byte more"), RefusedError);
  std::vector<std::byte> more((1 << 20) + 1);
  EXPECT_THROW(tier.write(block, more.data(), (1 << 20) + 1), InternalError);
  EXPECT_THROW(tier.read(block, more.data(), (1 << 20) + 1), InternalError);
  tier.memory().release(block);
  EXPECT_GT(tier.staging_bytes(), 2 << 20);
}

TEST_F(DiskTiers, ReadAndWriteBesideEachOther) {
  DiskTier tier(folder_, std::int64_t{32} << 20);
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

}  // namespace
}  // namespace garonne::device
