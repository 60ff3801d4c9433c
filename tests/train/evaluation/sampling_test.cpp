// The next token, against probabilities counted one by one.
#include "train/evaluation/sampling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace garonne::train::test {
namespace {

std::vector<double> random_logits(std::mt19937& generator, std::size_t count) {
  std::normal_distribution<double> normal(0, 2);
  std::vector<double> logits(count);
  for (double& logit : logits) logit = normal(generator);
  return logits;
}

// By the definitions, from the probabilities: which tokens may come, and how likely each is.
std::vector<double> reference(std::vector<double> logits, const Sampling& sampling,
                              const std::vector<std::uint32_t>& before) {
  for (const std::uint32_t token : std::set<std::uint32_t>(before.begin(), before.end())) {
    double& logit = logits[token];
    logit = logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
  }
  std::vector<double> chances(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    sum += chances[i] = std::exp(logits[i] / sampling.temperature);
  for (double& chance : chances) chance /= sum;
  if (sampling.top_k > 0) {
    // A token stays where fewer than k are likelier.
    std::vector<double> kept = chances;
    for (std::size_t i = 0; i < chances.size(); ++i) {
      const auto likelier = std::count_if(chances.begin(), chances.end(),
                                          [&](double other) { return other > chances[i]; });
      if (likelier >= sampling.top_k) kept[i] = 0;
    }
    sum = 0;
    for (const double chance : kept) sum += chance;
    for (std::size_t i = 0; i < chances.size(); ++i) chances[i] = kept[i] / sum;
  }
  if (sampling.top_p < 1) {
    // A token stays where those that are likelier do not reach p without it.
    std::vector<double> kept = chances;
    for (std::size_t i = 0; i < chances.size(); ++i) {
      double likelier = 0;
      for (const double other : chances) likelier += other > chances[i] ? other : 0;
      if (likelier >= sampling.top_p) kept[i] = 0;
    }
    sum = 0;
    for (const double chance : kept) sum += chance;
    for (std::size_t i = 0; i < chances.size(); ++i) chances[i] = kept[i] / sum;
  }
  return chances;
}

TEST(Sampling, ChoosesAsLikelyAsDefined) {
  std::mt19937 generator(1);
  for (const Sampling& sampling :
       {Sampling{.temperature = 0.8}, Sampling{.temperature = 1.5, .top_k = 3},
        Sampling{.temperature = 1.0, .top_p = 0.7},
        Sampling{.repetition_penalty = 1.7, .temperature = 0.6, .top_k = 6, .top_p = 0.9}}) {
    const std::vector<double> logits = random_logits(generator, 12);
    const std::vector<std::uint32_t> before = {3, 5, 3, 11};
    const std::vector<double> expected = reference(logits, sampling, before);
    // All words at equal distances: what comes is the share of each token to within one of them.
    constexpr std::uint64_t words = 20000;
    std::vector<int> times(logits.size(), 0);
    for (std::uint64_t i = 0; i < words; ++i) {
      const auto word = static_cast<std::uint32_t>((std::uint64_t{1} << 32U) * i / words);
      ++times[choose_token(logits, sampling, before, word)];
    }
    for (std::size_t token = 0; token < logits.size(); ++token)
      EXPECT_NEAR(times[token], expected[token] * static_cast<double>(words), 2) << token;
  }
}

TEST(Sampling, IsGreedyAtNoTemperatureAndWithOneToken) {
  std::mt19937 generator(2);
  for (int i = 0; i < 50; ++i) {
    std::vector<double> logits = random_logits(generator, 40);
    const auto best =
        static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const auto word = static_cast<std::uint32_t>(generator());
    EXPECT_EQ(choose_token(logits, {.temperature = 0}, {}, word), best);
    EXPECT_EQ(choose_token(logits, {.temperature = 2, .top_k = 1}, {}, word), best);
    EXPECT_EQ(choose_token(logits, {.temperature = 2, .top_p = 1e-6}, {}, word), best);
  }
  EXPECT_EQ(choose_token(std::vector<double>{1, 5, 5}, {.temperature = 0}, {}, 0), 1U);
  // The last word of all, where rounding could walk past the end.
  EXPECT_EQ(choose_token(std::vector<double>{5, 5, -900}, {.top_k = 2}, {}, 0xFFFFFFFFU), 1U);
}

TEST(Sampling, NeverChoosesWhatHasNoWeight) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  const std::vector<double> logits = {none, none, -3, none, 2, none, none};
  const std::vector<std::uint32_t> before = {0, 2, 4, 6};
  for (const Sampling& sampling :
       {Sampling{.temperature = 0}, Sampling{.temperature = 100}, Sampling{.top_k = 5},
        Sampling{.top_p = 0.99}, Sampling{.repetition_penalty = 3, .temperature = 0.5}}) {
    for (const std::uint32_t word : {0U, 1U, 0x80000000U, 0xFFFFFFFFU}) {
      const std::uint32_t token = choose_token(logits, sampling, before, word);
      EXPECT_TRUE(token == 2 || token == 4) << token;
    }
  }
}

}  // namespace
}  // namespace garonne::train::test
