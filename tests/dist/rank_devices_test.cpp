// Which device each rank is given, by what real ranks tell each other over a fake CUDA runtime.
#include "dist/rank_devices.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "device/fake_cuda_runtime.hpp"

namespace garonne::dist {
namespace {

class RankDevicesTest : public testing::Test {
 protected:
  std::string refused(device::FakeCudaRuntime& runtime, const char* visible, bool nccl) {
    try {
      assign_devices(session_, runtime, visible, false, nccl);
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), ExitCode::Usage);
      return error.what();
    }
    return "";
  }

  Session session_ = Session::start();
};

TEST_F(RankDevicesTest, RanksWithDevicesOfTheirOwnHaveATable) {
  device::FakeCudaRuntime runtime({.bus_id = fmt::format("0000:0{}:00.0", session_.rank())});
  const RankDevices found = assign_devices(session_, runtime, nullptr, false, true);
  EXPECT_FALSE(found.mine.shared());
  EXPECT_EQ(found.mine.device.rank, session_.rank());
  EXPECT_EQ(found.mine.device.ordinal, 0) << "the launcher chose";
  EXPECT_FALSE(found.mine.cores.empty());
  if (session_.rank() != 0) {
    EXPECT_EQ(found.table, "");
    return;
  }
  EXPECT_EQ(std::ranges::count(found.table, '\n'), session_.size());
  for (int rank = 0; rank < session_.size(); ++rank) {
    const std::string line = fmt::format(
        "rank {} on device 0 of 1 visible, 0000:0{}:00.0, a made-up device", rank, rank);
    EXPECT_NE(found.table.find(line), std::string::npos) << found.table;
  }
}

TEST_F(RankDevicesTest, RanksThatShareADeviceKnowItAndHaveNoNccl) {
  device::FakeCudaRuntime runtime;
  const RankDevices found = assign_devices(session_, runtime, "0", false, false);
  std::vector<int> everybody(static_cast<std::size_t>(session_.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  EXPECT_EQ(found.mine.sharing, everybody);
  const std::string text = refused(runtime, nullptr, true);
  if (session_.size() == 1) {
    EXPECT_EQ(text, "");
  } else {
    EXPECT_NE(text.find("grid.transport"), std::string::npos) << text;
    EXPECT_NE(text.find("0000:3B:00.0"), std::string::npos) << text;
  }
}

TEST_F(RankDevicesTest, WhatOneRankLacksAllRanksSay) {
  device::FakeCudaRuntime runtime;
  const bool last = session_.rank() == session_.size() - 1;
  const std::string text = refused(runtime, last ? "0,1" : "0", false);
  EXPECT_NE(text.find("entry 2 (1) is no device of this node"), std::string::npos) << text;
}

}  // namespace
}  // namespace garonne::dist
