// Copies between the host and a device's memory, which the host cannot touch: it is the made-up
// runtime's.
#include "exec/staging.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/cuda_device.hpp"
#include "device/fake_cuda_runtime.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t pinned_bytes = 64 << 10;
constexpr std::int64_t device_bytes = 1 << 20;

class Stagings : public testing::TestWithParam<std::uint64_t> {
 protected:
  Stagings()
      : runtime_({.delay_seed = GetParam()}),
        device_(runtime_, {.longest_wait_seconds = 60}),
        memory_(device_.reserve(Tier::Device, device_bytes)) {
    device_.reserve(Tier::Host, pinned_bytes);
    staging_ = std::make_unique<Staging>(device_, device_.reserved(Tier::Host));
  }

  void TearDown() override {
    staging_->wait();
    EXPECT_EQ(device_.reserved(Tier::Host)->live_bytes(), 0) << "pinned memory is kept";
    staging_.reset();
    device_.close();
    EXPECT_EQ(runtime_.violations(), std::vector<std::string>());
  }

  void fill(device::Span to, const std::vector<std::byte>& values) {
    staging_->fill(
        to.data, to.bytes,
        [&](std::int64_t first, std::span<std::byte> piece) {
          ASSERT_LE(static_cast<std::int64_t>(piece.size()), staging_->piece_bytes());
          std::memcpy(piece.data(), values.data() + first, piece.size());
        },
        "values");
  }

  std::vector<std::byte> read(device::Span from) {
    std::vector<std::byte> all;
    staging_->read(
        from.data, from.bytes,
        [&](std::span<const std::byte> piece) {
          all.insert(all.end(), piece.begin(), piece.end());
        },
        "values");
    return all;
  }

  device::FakeCudaRuntime runtime_;
  device::CudaDevice device_;
  device::TierMemory& memory_;
  std::unique_ptr<Staging> staging_;
};

TEST_P(Stagings, WhatIsFilledIsRead) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const std::int64_t piece = staging_->piece_bytes();
  EXPECT_EQ(piece % 512, 0);
  std::vector<std::pair<device::Span, std::vector<std::byte>>> blocks;
  for (const std::int64_t bytes :
       {std::int64_t{1}, std::int64_t{512}, piece - 1, piece, piece + 1, 5 * piece + 3}) {
    std::vector<std::byte> values(static_cast<std::size_t>(bytes));
    for (std::byte& value : values) value = static_cast<std::byte>(random());
    const device::Span block = memory_.allocate(bytes, "a block");
    fill(block, values);
    blocks.emplace_back(block, std::move(values));
  }
  // Compute follows what was filled, and what is read follows Compute.
  for (const auto& [block, values] : blocks) EXPECT_EQ(read(block), values);
}

TEST_P(Stagings, ComputeFollowsWhatIsFilled) {
  const device::Span block = memory_.allocate(4096, "a block");
  fill(block, std::vector<std::byte>(4096, std::byte{7}));
  std::byte* const side = runtime_.device_side(block.data);
  bool there = false;
  runtime_.launch(device_.queue(Lane::Compute).native, [&] {
    there = std::all_of(side, side + 4096, [](std::byte value) { return value == std::byte{7}; });
    std::fill_n(side, 4096, std::byte{8});
  });
  device_.launched(Lane::Compute, "a kernel");
  EXPECT_EQ(read(block), std::vector<std::byte>(4096, std::byte{8}));
  EXPECT_TRUE(there);
}

TEST_P(Stagings, NumbersAreKeptForAsLongAsTheyAreHeld) {
  const std::vector<std::int64_t> numbers = {3, 1, 4, 1, 5};
  {
    const Staging::Kept kept = staging_->keep(numbers, "samples");
    const device::Span block = memory_.allocate(device_bytes / 2, "a block");
    fill(block, std::vector<std::byte>(device_bytes / 2, std::byte{1}));
    EXPECT_TRUE(std::ranges::equal(kept.numbers(), numbers));
    EXPECT_GT(device_.reserved(Tier::Host)->live_bytes(), 0);
  }
  EXPECT_TRUE(staging_->keep({}, "none").numbers().empty());
}

// As a full disk does.
TEST_P(Stagings, WhoLooksMayThrow) {
  const device::Span block = memory_.allocate(4 * staging_->piece_bytes(), "a block");
  EXPECT_THROW(
      staging_->read(
          block.data, block.bytes,
          [](std::span<const std::byte>) { throw std::runtime_error("no more room"); }, "values"),
      std::runtime_error);
  const std::vector<std::byte> values(static_cast<std::size_t>(block.bytes), std::byte{5});
  fill(block, values);
  EXPECT_EQ(read(block), values);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Stagings, testing::Range<std::uint64_t>(1, 5));

}  // namespace
}  // namespace garonne::exec
