// Work that is ended where it allocates leaves nothing behind.
#include "nn/host_allocator.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "exec/device_tier.hpp"

namespace garonne::nn {
namespace {

TEST(HostAllocator, EndsWorkAtTheFirstLargeBlock) {
  bool ended = true;
  const auto blocks = blocks_until(100, [&] {
    const at::Tensor small = at::empty({25});
    const at::Tensor another = at::empty({3});
    const at::Tensor large = at::empty({26});
    ended = false;
  });
  EXPECT_TRUE(ended);
  EXPECT_EQ(blocks, (std::vector<std::int64_t>{100, 12, 104}));
}

TEST(HostAllocator, LetsWorkWithoutLargeBlocksBeDone) {
  at::Tensor sum;
  const auto blocks = blocks_until(1000, [&] { sum = at::ones({7}) + 2; });
  EXPECT_EQ(sum.sum().item<float>(), 21);
  EXPECT_FALSE(blocks.empty());
}

TEST(HostAllocator, WatchesOneThreadWhileWorkIsDone) {
  const auto blocks = blocks_until(8, [] {
    std::thread([] { EXPECT_EQ(at::ones({1000}).sum().item<float>(), 1000); }).join();
    const auto inner = blocks_until(100, [] { const at::Tensor large = at::empty({1000}); });
    EXPECT_EQ(inner, std::vector<std::int64_t>{4000});
    const at::Tensor large = at::empty({10});
  });
  EXPECT_EQ(blocks, std::vector<std::int64_t>{40});
  EXPECT_EQ(at::ones({1000}).sum().item<float>(), 1000);
  EXPECT_THROW(blocks_until(8, [] { throw std::runtime_error("of the work"); }),
               std::runtime_error);
  EXPECT_EQ(at::ones({1000}).sum().item<float>(), 1000);
}

TEST(HostAllocator, CountsNothingInATierThatWasNotTaken) {
  exec::DeviceTier tier(1 << 20);
  const exec::DeviceScope scope(tier);
  const at::Tensor held = at::ones({100});
  const std::int64_t before = tier.live_bytes();
  blocks_until(100, [] {
    const at::Tensor small = at::empty({25});
    const at::Tensor large = at::empty({std::int64_t{1} << 40});
  });
  EXPECT_EQ(tier.live_bytes(), before);
  EXPECT_EQ(held.sum().item<float>(), 100);
}

// Whatever the library remembers of a product that was ended, the next one is right.
TEST(HostAllocator, AProductThatWasEndedIsRightAfterwards) {
  at::manual_seed(3);
  const at::Tensor left = at::randn({300, 600}).to(at::kBFloat16);
  const at::Tensor right = at::randn({600, 500}).to(at::kBFloat16);
  const at::Tensor wanted = at::mm(left.to(at::kDouble), right.to(at::kDouble));
  at::Tensor result = at::empty({300, 500}, at::kBFloat16);
  for (int k = 0; k < 3; ++k) {
    blocks_until(512, [&] { at::mm_out(result, left, right); });
    result.fill_(0);
    at::mm_out(result, left, right);
    EXPECT_TRUE(at::allclose(result.to(at::kDouble), wanted, /*rtol=*/0.02, /*atol=*/0.5));
  }
}

}  // namespace
}  // namespace garonne::nn
