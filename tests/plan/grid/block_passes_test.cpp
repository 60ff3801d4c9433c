// What passes take of a device and a host, held against every pass of every micro-batch in turn.
#include "plan/grid/block_passes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace garonne::plan {
namespace {

struct Reached {
  double now = 0;
  double issued = 0;
};

Reached one_after_the_other(const std::vector<PassSeconds>& micro_batch, int micro_batches,
                            bool host_waits) {
  double issued = 0;
  double now = 0;
  for (int m = 0; m < micro_batches; ++m) {
    if (host_waits) issued = now;
    for (const PassSeconds& pass : micro_batch) {
      issued += pass.host;
      now = std::max(now + pass.device, issued);
    }
  }
  return {now, issued};
}

TEST(BlockPasses, TakeAsLongTogetherAsOneAfterTheOther) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> share(0, 1);
  int bound_by_host = 0;
  for (int number = 0; number < 500; ++number) {
    std::vector<PassSeconds> passes(1 + random() % 8);
    const double host = number % 5 == 0 ? 0 : share(random);
    double issued = 0;
    double computed = 0;
    for (PassSeconds& pass : passes) {
      pass = {share(random) * share(random), host * share(random)};
      issued += pass.host;
      computed += pass.device;
    }
    const int micro_batches = 1 + static_cast<int>(random() % 40);
    for (const bool host_waits : {false, true}) {
      const Reached expected = one_after_the_other(passes, micro_batches, host_waits);
      PassClock clock;
      clock.start_with(passes, micro_batches, host_waits);
      EXPECT_NEAR(clock.now(), expected.now, 1e-12 * expected.now) << number;
      // What is last waits for all that was issued before.
      const PassSeconds last{0, 1};
      clock.run(last);
      EXPECT_NEAR(clock.now(), std::max(expected.now, expected.issued + 1), 1e-12 * expected.now);
    }
    bound_by_host += issued > computed;
  }
  EXPECT_GT(bound_by_host, 50);
  EXPECT_LT(bound_by_host, 450);
}

TEST(BlockPasses, HaveTheKernelsOfCollectivesBeside) {
  BlockCost block;
  block.forward_seconds = 1;
  block.forward_link_seconds = 2;
  block.forward_link_kernels = 3;
  block.forward_link_launches = 6;
  block.forward_issue_seconds = 0.5;
  block.backward_seconds = 4;
  block.weight_seconds = 5;
  block.backward_issue_seconds = 0.25;
  const KernelSeconds kernels{.least = 0.1, .issue = 0.01};
  EXPECT_DOUBLE_EQ(forward_pass(block, kernels).device, 3.3);
  EXPECT_DOUBLE_EQ(forward_pass(block, kernels).host, 0.56);
  EXPECT_DOUBLE_EQ(backward_pass(block, kernels).device, 9);
  EXPECT_DOUBLE_EQ(backward_pass(block, kernels).host, 0.25);
}

}  // namespace
}  // namespace garonne::plan
