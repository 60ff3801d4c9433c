// What NCCL takes beside the budget, by the numbers that were measured of it.
#include "dist/nccl_memory.hpp"

#include <gtest/gtest.h>

namespace garonne::dist {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

TEST(NcclMemory, ChannelsHalveWithEachDoublingOfThePeers) {
  EXPECT_EQ(nccl_channels(2), 8);
  EXPECT_EQ(nccl_channels(9), 8);
  EXPECT_EQ(nccl_channels(10), 4);
  EXPECT_EQ(nccl_channels(17), 4);
  EXPECT_EQ(nccl_channels(18), 2);
  EXPECT_EQ(nccl_channels(33), 2);
  EXPECT_EQ(nccl_channels(34), 1);
  EXPECT_EQ(nccl_channels(4096), 1);
}

TEST(NcclMemory, OfARankAloneIsNone) {
  EXPECT_EQ(nccl_bytes({}), 0);
  EXPECT_EQ(nccl_bytes({{.members = 1, .channels = 8}, {.members = 1}}), 0);
}

// Code, two communicators, and 12 MiB for each channel to 7 peers and of a ring: by hand.
TEST(NcclMemory, IsOfChannelsTimesPeers) {
  EXPECT_EQ(nccl_bytes({{.members = 8, .channels = 8}, {.members = 8, .channels = 1}}),
            (256 + 2 * 16 + (7 + 1) * 8 * 12 + (7 + 1) * 1 * 12) * mebibyte);
}

// With the 32 channels that NCCL takes by itself, 8 ranks have 2.7 GiB of buffers to their peers,
// and a gibibyte would not do.
TEST(NcclMemory, WithNcclsOwnChannelsIsAsMeasured) {
  const std::int64_t own = nccl_bytes({{.members = 8, .channels = 32}});
  EXPECT_GT(own, 2700 * mebibyte);
  EXPECT_LT(own, 3500 * mebibyte);
  EXPECT_LT(nccl_bytes({{.members = 8, .channels = nccl_channels(8)}}), 1100 * mebibyte);
}

TEST(NcclMemory, OfLanesIsTheirEnds) {
  const std::int64_t none = nccl_bytes({{.members = 4, .channels = 8, .all_to_all = false}});
  EXPECT_EQ(none, (256 + 16 + 8 * 12) * mebibyte);
  EXPECT_EQ(nccl_bytes({{.members = 4, .channels = 8, .all_to_all = false, .lanes = 4}}),
            none + 4 * (16 + 4 * 12) * mebibyte);
}

}  // namespace
}  // namespace garonne::dist
