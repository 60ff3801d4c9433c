// What is special about the emulated device: its memory, its slow copies, its late lanes.
#include "device/emulated_device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "device/lane_error.hpp"

namespace garonne::device {
namespace {

bool all_nan(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return std::isnan(value); });
}

// As the device sees them, in the order of Compute.
std::vector<float> contents(EmulatedDevice& device, Span block) {
  std::vector<float> values(static_cast<std::size_t>(block.bytes) / sizeof(float));
  const Span host{Tier::Host, reinterpret_cast<std::byte*>(values.data()), block.bytes};
  device.wait(device.copy(Lane::CopyOut, host, block, "look"));
  return values;
}

class EmulatedMemory : public testing::TestWithParam<bool> {
 protected:
  EmulatedDevice device_{{.limit_bytes = 4096, .compute_thread = GetParam()}};
};

INSTANTIATE_TEST_SUITE_P(Compute, EmulatedMemory, testing::Bool(), [](const auto& thread) {
  return thread.param ? "OnAThread" : "OnTheCallingThread";
});

TEST_P(EmulatedMemory, BlocksHoldNanUntilTheyAreWrittenAndWhenTheyWereFreed) {
  TierMemory& memory = device_.device_memory();
  EXPECT_EQ(memory.tier(), Tier::Device);
  const Span block = memory.allocate(400, "block");
  EXPECT_TRUE(all_nan(contents(device_, block)));
  const auto fill = [block] { std::fill_n(reinterpret_cast<float*>(block.data), 100, 2.0F); };
  device_.run(Lane::Compute, fill, "fill");
  EXPECT_EQ(contents(device_, block), std::vector<float>(100, 2.0F));
  memory.release(block);
  EXPECT_TRUE(all_nan(contents(device_, block))) << "a use after free";
  const Span again = memory.allocate(400, "again");
  EXPECT_EQ(again.data, block.data) << "there is no reason to take another one";
  EXPECT_TRUE(all_nan(contents(device_, again)));
}

// Poison that came before the last use would spoil what is right.
TEST_P(EmulatedMemory, PoisonKeepsTheOrderOfCompute) {
  TierMemory& memory = device_.device_memory();
  std::vector<float> seen(100);
  const Span block = memory.allocate(400, "block");
  float* values = reinterpret_cast<float*>(block.data);
  device_.run(
      Lane::Compute,
      [values] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::fill_n(values, 100, 3.0F);
      },
      "slow");
  device_.run(
      Lane::Compute, [values, &seen] { std::copy_n(values, 100, seen.begin()); }, "last use");
  memory.release(block);
  device_.wait(device_.mark(Lane::Compute));
  EXPECT_EQ(seen, std::vector<float>(100, 3.0F));
}

TEST_P(EmulatedMemory, HasALimitAndSaysWhoPassedIt) {
  TierMemory& memory = device_.device_memory();
  EXPECT_EQ(device_.kind(), DeviceKind::Emulated);
  EXPECT_EQ(device_.memory().total_bytes, 4096);
  const Span block = memory.allocate(4001, "block");
  EXPECT_EQ(device_.memory().free_bytes, 64) << "4001 bytes are counted as 4032";
  try {
    memory.allocate(65, "forward layer 3 (micro-batch 1)");
    ADD_FAILURE() << "no refusal";
  } catch (const RefusedError& error) {
    EXPECT_NE(std::string(error.what()).find("forward layer 3 (micro-batch 1)"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("device tier"), std::string::npos) << error.what();
  }
  memory.release(block);
  EXPECT_EQ(device_.memory().free_bytes, 4096);
}

TEST(EmulatedDevice, NanInEveryType) {
  EmulatedDevice device({.limit_bytes = 4096});
  const Span block = device.device_memory().allocate(64, "block");
  std::uint16_t half = 0;
  double wide = 0;
  std::memcpy(&half, block.data, sizeof(half));
  std::memcpy(&wide, block.data, sizeof(wide));
  EXPECT_TRUE(std::isnan(wide));
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(std::uint32_t{half} << 16))) << "bfloat16";
  EXPECT_GT(half & 0x7FFF, 0x7C00) << "float16";
}

// Sleeps are never shorter than asked for, so a lower bound holds on every machine.
TEST(EmulatedDevice, CopiesTakeTheTimeOfTheirLane) {
  EmulatedDevice device({.limit_bytes = 1 << 20, .bytes_per_second = {{Lane::CopyOut, 2e6}}});
  const Span block = device.device_memory().allocate(100000, "block");
  std::vector<std::byte> host(100000);
  const Mark before = device.timed_mark(Lane::CopyOut);
  device.copy(Lane::CopyOut, {Tier::Host, host.data(), 100000}, block, "slow");
  const Mark after = device.timed_mark(Lane::CopyOut);
  device.wait(after);
  EXPECT_GE(device.seconds(before, after), 0.05);
  EXPECT_TRUE(std::equal(host.begin(), host.end(), block.data)) << "all pieces of it";
  EXPECT_THROW(EmulatedDevice({.limit_bytes = 1, .bytes_per_second = {{Lane::CopyIn, 0}}}),
               InternalError);
}

// It must not take the ten minutes that the copy would.
TEST(EmulatedDevice, EndsInTheMiddleOfASlowCopy) {
  std::vector<std::byte> host(100000);
  const auto start = std::chrono::steady_clock::now();
  {
    EmulatedDevice device({.limit_bytes = 1 << 20,
                           .bytes_per_second = {{Lane::CopyOut, 160}},
                           .longest_wait_seconds = 0.02});
    const Span block = device.device_memory().allocate(100000, "block");
    const Mark mark = device.copy(Lane::CopyOut, {Tier::Host, host.data(), 100000}, block, "slow");
    EXPECT_THROW(device.order(Lane::Compute, mark), LaneError);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(2));
}

TEST(Lateness, IsTheSameForTheSameSeedAndOfEveryKind) {
  int at_once = 0;
  int yields = 0;
  int sleeps = 0;
  int held = 0;
  int other_seed = 0;
  int other_lane = 0;
  for (std::uint64_t number = 1; number <= 400; ++number) {
    const Lateness late = lateness_of(7, {Lane::CopyIn, number}, 0.01);
    const Lateness again = lateness_of(7, {Lane::CopyIn, number}, 0.01);
    EXPECT_EQ(late.until_asked_for, again.until_asked_for);
    EXPECT_EQ(late.yields, again.yields);
    EXPECT_EQ(late.seconds, again.seconds);
    EXPECT_GE(late.seconds, 0);
    EXPECT_LT(late.seconds, 0.01);
    held += late.until_asked_for;
    yields += late.yields > 0;
    sleeps += late.seconds > 0;
    at_once += !late.until_asked_for && late.yields == 0 && late.seconds == 0;
    const bool asked_for = late.until_asked_for;
    other_seed += asked_for != lateness_of(8, {Lane::CopyIn, number}, 0.01).until_asked_for;
    other_lane += asked_for != lateness_of(7, {Lane::CopyOut, number}, 0.01).until_asked_for;
  }
  for (const int kind : {at_once, yields, sleeps, held}) EXPECT_NEAR(kind, 100, 40);
  EXPECT_GT(other_seed, 80);
  EXPECT_GT(other_lane, 80);
}

// What is held is done late, not never: as late as somebody needs it.
TEST(EmulatedDevice, HoldsWorkUntilItIsAskedFor) {
  std::uint64_t seed = 0;
  while (!lateness_of(seed, {Lane::CopyIn, 1}, 0).until_asked_for) ++seed;
  bool done = false;
  EmulatedDevice device({.limit_bytes = 0, .delay_seed = seed});
  const Mark held = device.run(
      Lane::CopyIn, [&done] { done = true; }, "held");
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(device.done(held)) << "this asks for it";
  device.wait(held);
  EXPECT_TRUE(done);
}

// Another process may wait for what nobody here asks for.
TEST(EmulatedDevice, HoldsWorkNoLongerThanItMay) {
  std::uint64_t seed = 0;
  while (!lateness_of(seed, {Lane::Message, 1}, 0).until_asked_for) ++seed;
  std::promise<void> done;
  EmulatedDevice device({.limit_bytes = 0, .delay_seed = seed, .longest_hold_seconds = 0.001});
  device.run(
      Lane::Message, [&done] { done.set_value(); }, "held");
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
}

}  // namespace
}  // namespace garonne::device
