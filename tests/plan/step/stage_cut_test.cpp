// Where a model is cut into stages.
#include <gtest/gtest.h>

#include "base/error.hpp"
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
