#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "data/sample_order.hpp"

namespace garonne::data {
namespace {

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(order.samples()));
  std::int64_t index = epoch * order.samples();
  for (std::int64_t& sample : samples) sample = order.sample(index++);
  return samples;
}

bool is_permutation_of_all(const std::vector<std::int64_t>& samples) {
  std::vector<bool> seen(samples.size(), false);
  for (const std::int64_t sample : samples) {
    if (sample < 0 || sample >= static_cast<std::int64_t>(samples.size())) return false;
    if (seen[static_cast<std::size_t>(sample)]) return false;
    seen[static_cast<std::size_t>(sample)] = true;
  }
  return true;
}

TEST(SampleOrder, EverySampleOnceAnEpochForEverySize) {
  // All small sizes, then a stride that is prime to the blocks; the largest is exactly 5000.
  for (std::int64_t samples = 1; samples <= 5000; samples += samples < 300 ? 1 : 47) {
    for (const std::int64_t block : {1, 7, 33, 1000, 10000}) {
      for (const std::int64_t together : {1, 3, 64}) {
        const SampleOrder order(samples, 17, block, together);
        ASSERT_TRUE(is_permutation_of_all(epoch_of(order, samples % 3)))
            << samples << " samples, block " << block << ", together " << together;
      }
    }
  }
}

TEST(SampleOrder, EveryEpochIsAPermutation) {
  const SampleOrder order(5000, 3, 13);
  for (std::int64_t epoch = 0; epoch < 10; ++epoch) {
    ASSERT_TRUE(is_permutation_of_all(epoch_of(order, epoch))) << epoch;
  }
  ASSERT_TRUE(is_permutation_of_all(epoch_of(order, std::int64_t{1} << 40)));
}

TEST(SampleOrder, DiffersBySeedAndEpoch) {
  const SampleOrder order(1000, 1, 50);
  const SampleOrder other(1000, 2, 50);
  EXPECT_EQ(epoch_of(order, 0), epoch_of(SampleOrder(1000, 1, 50), 0));
  EXPECT_NE(epoch_of(order, 0), epoch_of(order, 1));
  EXPECT_NE(epoch_of(order, 0), epoch_of(other, 0));
  std::vector<std::int64_t> in_order(1000);
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_NE(epoch_of(order, 0), in_order);
}

// The bits of the order are part of what a restart and another machine must find again.
TEST(SampleOrder, IsTheSameForEver) {
  const SampleOrder order(1000, 1, 50);
  const std::vector<std::int64_t> first = order.step_samples(1, 6);
  EXPECT_EQ(first, (std::vector<std::int64_t>{443, 765, 482, 269, 684, 377}));
}

TEST(SampleOrder, StepsCutTheSequenceOfEpochs) {
  const SampleOrder order(10, 5, 3);
  std::vector<std::int64_t> by_steps;
  for (std::int64_t step = 1; step <= 5; ++step) {
    for (const std::int64_t sample : order.step_samples(step, 4)) by_steps.push_back(sample);
  }
  std::vector<std::int64_t> expected = epoch_of(order, 0);
  for (const std::int64_t sample : epoch_of(order, 1)) expected.push_back(sample);
  EXPECT_EQ(by_steps, expected);
  EXPECT_THROW(order.step_samples(0, 4), InternalError);
}

// A run of blocks holds few different blocks, which is what makes reading cheap, and mixes them.
TEST(SampleOrder, StaysWithinAFewBlocksAtATime) {
  const std::int64_t block = 100;
  const std::int64_t together = 8;
  const SampleOrder order(80000, 9, block, together);
  const std::vector<std::int64_t> samples = epoch_of(order, 0);
  for (std::size_t run = 0; run < 100; ++run) {
    std::set<std::int64_t> blocks;
    for (std::size_t index = run * 800; index < (run + 1) * 800; ++index) {
      blocks.insert(samples[index] / block);
    }
    EXPECT_EQ(blocks.size(), 8U);
    std::set<std::int64_t> at_once;
    for (std::size_t index = run * 800; index < run * 800 + 64; ++index) {
      at_once.insert(samples[index] / block);
    }
    EXPECT_GE(at_once.size(), 6U);
  }
}

TEST(SampleOrder, SpreadsEvenly) {
  // Over many epochs each sample comes equally often in the first tenth.
  const std::int64_t samples = 200;
  const SampleOrder order(samples, 4, 10, 4);
  std::vector<int> early(static_cast<std::size_t>(samples), 0);
  const int epochs = 2000;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::int64_t place = 0; place < samples / 10; ++place) {
      ++early[static_cast<std::size_t>(order.sample(epoch * samples + place))];
    }
  }
  // Binomial with mean 200 and deviation 13.4: five deviations.
  EXPECT_GT(*std::min_element(early.begin(), early.end()), 133);
  EXPECT_LT(*std::max_element(early.begin(), early.end()), 267);
}

TEST(SampleOrder, RefusesWhatCannotBe) {
  EXPECT_THROW(SampleOrder(0, 1, 1), ConfigError);
  EXPECT_THROW(SampleOrder(10, 1, 0), ConfigError);
  EXPECT_THROW(SampleOrder(10, 1, 1).sample(-1), InternalError);
  EXPECT_EQ(shuffle_block(128), 1024);
  EXPECT_EQ(shuffle_block(1 << 20), 1);
}

TEST(SampleOrder, ManySamples) {
  const std::int64_t samples = 300000007;
  const SampleOrder order(samples, 1, 1024);
  const auto start = std::chrono::steady_clock::now();
  std::set<std::int64_t> seen;
  for (std::int64_t index = 0; index < 20000; ++index) seen.insert(order.sample(index));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(seen.size(), 20000U);
  EXPECT_LT(*seen.rbegin(), samples);
  std::printf("one sample number: %.2f us\n", taken.count() / 20000 * 1e6);
}

}  // namespace
}  // namespace garonne::data
