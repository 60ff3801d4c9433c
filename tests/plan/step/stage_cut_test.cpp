// Where a model is cut into stages.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/grid/estimated_model.hpp"
#include "plan/pipeline/stage_cut.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/pipelines.hpp"

namespace garonne::plan {
namespace {

TEST(StageCut, PartsAreBalanced) {
  const ModelGraph whole = test::splitting_chain(10);
  const auto parts = balanced_parts(whole, 3);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts.front().first, 0);
  EXPECT_EQ(parts.back().last, static_cast<int>(whole.nodes.size()));
  for (std::size_t k = 1; k < parts.size(); ++k) EXPECT_EQ(parts[k].first, parts[k - 1].last);
  EXPECT_THROW(balanced_parts(whole, 1000), ConfigError);
}

TEST(StageCut, PartsBeginWhereGradientsGoBack) {
  // Nodes 0 to 4 of blocks 0, 0, 1, 1, 2, … have none, so the third block reads such a value.
  const ModelGraph whole = test::without_gradients(test::chain(6, 2), 5);
  const auto may_begin = part_beginnings(whole);
  EXPECT_EQ(may_begin, (std::vector<bool>{true, false, false, true, true, true, true}));
  const int most = 5;
  for (int count = 1; count <= most; ++count) {
    for (const auto& part : balanced_parts(whole, count)) {
      const int block = whole.nodes[static_cast<std::size_t>(part.first)].block;
      EXPECT_TRUE(may_begin[static_cast<std::size_t>(block)]) << count << " parts";
    }
  }
  EXPECT_THROW(balanced_parts(whole, most + 1), ConfigError);
}

using Balance = std::pair<double, double>;  // the slowest part, the sum of squares

Balance balance_of(const std::vector<double>& seconds, const std::vector<int>& firsts) {
  Balance balance{0, 0};
  for (std::size_t k = 0; k + 1 < firsts.size(); ++k) {
    double part = 0;
    for (int b = firsts[k]; b < firsts[k + 1]; ++b) part += seconds[static_cast<std::size_t>(b)];
    balance.first = std::max(balance.first, part);
    balance.second += part * part;
  }
  return balance;
}

// Over all ways to begin the parts that are left.
Balance best_balance(const std::vector<double>& seconds, const std::vector<bool>& may_begin,
                     std::size_t parts, std::vector<int> firsts) {
  if (firsts.size() == parts) {
    firsts.push_back(static_cast<int>(seconds.size()));
    return balance_of(seconds, firsts);
  }
  Balance best{std::numeric_limits<double>::infinity(), 0};
  for (std::size_t b = static_cast<std::size_t>(firsts.back()) + 1; b < seconds.size(); ++b) {
    if (!may_begin[b]) continue;
    std::vector<int> next = firsts;
    next.push_back(static_cast<int>(b));
    best = std::min(best, best_balance(seconds, may_begin, parts, std::move(next)));
  }
  return best;
}

TEST(StageCut, NoBlocksAreBalancedBetter) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    std::vector<double> seconds;  // whole numbers: sums are exact
    std::vector<bool> may_begin;
    const auto blocks = static_cast<unsigned>(1 + random() % 10);
    for (unsigned b = 0; b < blocks; ++b) {
      seconds.push_back(static_cast<double>(random() % (seed % 2 == 0 ? 4 : 1000)));
      may_begin.push_back(b == 0 || random() % 5 > 0);
    }
    const auto most = std::count(may_begin.begin(), may_begin.end(), true);
    for (int parts = 1; parts <= most; ++parts) {
      const std::vector<int> firsts = balanced_blocks(seconds, may_begin, parts);
      ASSERT_EQ(firsts.size(), static_cast<std::size_t>(parts) + 1) << seed;
      EXPECT_EQ(firsts.front(), 0) << seed;
      EXPECT_EQ(firsts.back(), static_cast<int>(blocks)) << seed;
      for (std::size_t k = 0; k + 1 < firsts.size(); ++k) {
        EXPECT_LT(firsts[k], firsts[k + 1]) << seed;
        EXPECT_TRUE(may_begin[static_cast<std::size_t>(firsts[k])]) << seed;
      }
      EXPECT_EQ(balance_of(seconds, firsts),
                best_balance(seconds, may_begin, static_cast<std::size_t>(parts), {0}))
          << "seed " << seed << ", " << parts << " parts";
    }
  }
}

// Of blocks that take equally long only the rounding of their sums says which cut is the better
// one.
TEST(StageCut, EstimatesCutWhereProgramsDo) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> seconds(1e-6, 1e-3);
    const int nodes_a_block = 5;
    ModelGraph whole = test::chain(static_cast<int>(4 + random() % 8), nodes_a_block);
    NodeSpec timed[nodes_a_block];
    for (NodeSpec& node : timed) {
      node.forward_keep.seconds = seconds(random);
      node.backward.seconds = seconds(random);
      node.backward_weight.seconds = seconds(random);
    }
    int of_block = 0;
    for (std::size_t n = 0; n < whole.nodes.size(); ++n) {
      of_block = n > 0 && whole.nodes[n].block == whole.nodes[n - 1].block ? of_block + 1 : 0;
      whole.nodes[n].forward_keep.seconds = timed[of_block].forward_keep.seconds;
      whole.nodes[n].backward.seconds = timed[of_block].backward.seconds;
      whole.nodes[n].backward_weight.seconds = timed[of_block].backward_weight.seconds;
    }
    EstimatedModel estimated;
    estimated.blocks = block_costs(whole);
    for (int parts = 2; parts <= 4; ++parts) {
      const std::vector<int>& firsts = estimated.firsts_of(parts, {});
      const std::vector<NodeRange> cut = balanced_parts(whole, parts);
      for (std::size_t k = 0; k < cut.size(); ++k) {
        EXPECT_EQ(firsts[k], whole.nodes[as_index(cut[k].first)].block)
            << "seed " << seed << ", part " << k << " of " << parts;
      }
    }
  }
}

// A parameter of a stage gets a gradient there.
TEST(StageCut, NoPartUsesAParameterOnlyWhereItHasNoGradient) {
  ModelGraph whole = test::without_gradients(test::chain(6, 2), 1);
  ASSERT_FALSE(whole.nodes[2].parameters.empty());
  whole.nodes[0].parameters = whole.nodes[6].parameters;
  const auto beginnings = part_beginnings(whole);
  const int gradient = whole.nodes[6].block;
  for (int block = 1; block <= gradient; ++block)
    EXPECT_FALSE(beginnings[static_cast<std::size_t>(block)]) << block;
  EXPECT_TRUE(beginnings[static_cast<std::size_t>(gradient) + 1]);
}

}  // namespace
}  // namespace garonne::plan
