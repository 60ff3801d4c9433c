#include "train/evaluation/validation_batches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace garonne::train {
namespace {

std::vector<ValidationSource> sources_of(const std::vector<double>& weights,
                                         const std::vector<std::int64_t>& samples) {
  std::vector<ValidationSource> sources;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sources.push_back({.path = "file " + std::to_string(i),
                       .weight = weights[i],
                       .first_sample = first,
                       .samples = samples[i]});
    first += samples[i] + 100;  // as where a file comes several times
  }
  return sources;
}

std::vector<std::int64_t> all_samples(const ValidationBatches& batches) {
  std::vector<std::int64_t> all;
  for (std::int64_t place = 0; place < batches.batches(); ++place) {
    const std::vector<std::int64_t> here = batches.samples_of(place);
    all.insert(all.end(), here.begin(), here.end());
  }
  return all;
}

TEST(SpreadSample, IsTheMiddleOfItsStretch) {
  for (std::int64_t samples = 1; samples < 40; ++samples) {
    for (std::int64_t wanted = 1; wanted < 60; ++wanted) {
      for (std::int64_t place = 0; place < wanted; ++place) {
        // The largest sample that is not behind the middle.
        std::int64_t expected = 0;
        while (2 * wanted * (expected + 1) <= (2 * place + 1) * samples) ++expected;
        ASSERT_EQ(spread_sample(place, wanted, samples), expected);
        if (wanted == samples) {
          ASSERT_EQ(expected, place);
        }
      }
    }
  }
  EXPECT_EQ(spread_sample((1LL << 31) - 2, (1LL << 31) - 1, 1LL << 48),
            (1LL << 48) - (1 << 16) - 1);
}

TEST(ValidationBatches, OfOneFileAllOrEvenlySpread) {
  const ValidationBatches whole(sources_of({0.3}, {21}), 1000, 4);
  EXPECT_EQ(whole.batches(), 5);
  const ValidationBatches fits(sources_of({1}, {20}), 1000, 4);
  const std::vector<std::int64_t> all = all_samples(fits);
  ASSERT_EQ(all.size(), 20U);
  for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
  const ValidationBatches some(sources_of({1}, {1000}), 5, 2);
  EXPECT_EQ(all_samples(some),
            (std::vector<std::int64_t>{50, 150, 250, 350, 450, 550, 650, 750, 850, 950}));
  EXPECT_EQ(some.weighted(some.means({1, 2, 3, 4, 5})), 3.0);
}

// Against the largest of all quotients of all files, sorted at once.
TEST(ValidationBatches, AreSharedByWeight) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t files = 1 + random() % 5;
    std::vector<double> weights;
    std::vector<std::int64_t> samples;
    for (std::size_t i = 0; i < files; ++i) {
      weights.push_back(1 + static_cast<double>(random() % 50));
      samples.push_back(1 + static_cast<std::int64_t>(random() % 60));
    }
    const auto wanted = static_cast<std::int64_t>(1 + random() % 40);
    const auto micro_batch = static_cast<std::int64_t>(1 + random() % 4);
    const ValidationBatches batches(sources_of(weights, samples), wanted, micro_batch);
    std::multimap<double, std::size_t, std::greater<>> quotients;
    std::int64_t most = 0;
    for (std::size_t i = 0; i < files; ++i) {
      const std::int64_t here = std::max<std::int64_t>(1, samples[i] / micro_batch);
      most += here;
      for (std::int64_t k = 1; k < here; ++k)
        quotients.emplace(weights[i] / (2.0 * static_cast<double>(k) + 1), i);
    }
    const std::int64_t total = std::min(std::max<std::int64_t>(wanted, std::ssize(weights)), most);
    ASSERT_EQ(batches.batches(), total);
    std::vector<std::int64_t> expected(files, 1);
    auto next = quotients.begin();
    for (std::int64_t k = std::ssize(weights); k < total; ++k) ++expected[(next++)->second];
    std::int64_t place = 0;
    for (std::size_t i = 0; i < files; ++i) {
      // Of equal quotients another file may have the last one.
      EXPECT_NEAR(static_cast<double>(batches.batches_of(i)), static_cast<double>(expected[i]), 1);
      const ValidationSource& source = batches.sources()[i];
      std::map<std::int64_t, int> times;
      for (std::int64_t k = 0; k < batches.batches_of(i); ++k) {
        for (const std::int64_t sample : batches.samples_of(place++)) {
          EXPECT_GE(sample, source.first_sample);
          EXPECT_LT(sample, source.first_sample + source.samples);
          ++times[sample];
        }
      }
      if (samples[i] >= micro_batch) {
        EXPECT_EQ(static_cast<std::int64_t>(times.size()), batches.batches_of(i) * micro_batch);
      }
    }
  }
}

TEST(ValidationBatches, WeighTheMeansOfFiles) {
  const ValidationBatches batches(sources_of({1, 99}, {1000, 1000}), 20, 8);
  EXPECT_EQ(batches.batches_of(0), 1);
  EXPECT_EQ(batches.batches_of(1), 19);
  std::vector<double> losses(20, 3.0);
  losses[0] = 5.0;
  EXPECT_EQ(batches.means(losses), (std::vector<double>{5, 3}));
  EXPECT_NEAR(batches.weighted(batches.means(losses)), 3.02, 1e-12);
  // All of them, however unlike the shares are to the sizes.
  const ValidationBatches all(sources_of({1, 99}, {64, 8}), 1000, 8);
  EXPECT_EQ(all.batches_of(0), 8);
  EXPECT_EQ(all.batches_of(1), 1);
  const std::vector<std::int64_t> samples = all_samples(all);
  EXPECT_EQ(std::set<std::int64_t>(samples.begin(), samples.end()).size(), 72U);
}

}  // namespace
}  // namespace garonne::train
