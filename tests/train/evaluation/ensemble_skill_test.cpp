// Scores of ensembles beside sums over all pairs, and on ensembles whose scores are known.
#include "train/evaluation/ensemble_skill.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <random>

namespace garonne::train {
namespace {

struct Ensemble {
  std::vector<std::vector<float>> members;
  std::vector<float> truth;

  EnsembleSkill skill(const Weighting& weighting) const {
    std::vector<std::span<const float>> spans(members.begin(), members.end());
    return ensemble_skill(spans, truth, weighting);
  }
};

Ensemble random_ensemble(std::size_t members, std::size_t points, unsigned seed,
                         double spread = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Ensemble made;
  for (std::size_t member = 0; member < members; ++member) {
    made.members.emplace_back();
    for (std::size_t point = 0; point < points; ++point)
      made.members.back().push_back(static_cast<float>(spread) * normal(engine));
  }
  for (std::size_t point = 0; point < points; ++point) made.truth.push_back(normal(engine));
  return made;
}

TEST(EnsembleSkill, IsWhatItsDefinitionSays) {
  const Weighting weighting{"", {0.5, 1.5}};
  for (const std::size_t members : {2U, 3U, 8U}) {
    Ensemble ensemble = random_ensemble(members, 12, 3);
    ensemble.truth[4] = std::numeric_limits<float>::quiet_NaN();
    const EnsembleSkill skill = ensemble.skill(weighting);
    EXPECT_EQ(skill.points, 11);
    double weights = 0;
    double crps = 0;
    double variance = 0;
    double squares = 0;
    std::vector<double> ranks(members + 1);
    const auto size = static_cast<double>(members);
    for (std::size_t point = 0; point < 12; ++point) {
      if (point == 4) continue;
      const double weight = point < 6 ? 0.5 : 1.5;
      const double y = static_cast<double>(ensemble.truth[point]);
      const auto x = [&](std::size_t member) {
        return static_cast<double>(ensemble.members[member][point]);
      };
      double mean = 0;
      for (std::size_t i = 0; i < members; ++i) mean += x(i) / size;
      std::size_t below = 0;
      for (std::size_t i = 0; i < members; ++i) {
        crps += weight * std::abs(x(i) - y) / size;
        variance += weight * (x(i) - mean) * (x(i) - mean) / (size - 1);
        below += x(i) < y ? 1U : 0U;
        for (std::size_t j = 0; j < members; ++j)
          crps -= weight * std::abs(x(i) - x(j)) / (2 * size * (size - 1));
      }
      squares += weight * (mean - y) * (mean - y);
      ranks[below] += weight;
      weights += weight;
    }
    EXPECT_NEAR(skill.crps, crps / weights, 1e-12);
    EXPECT_NEAR(skill.variance, variance / weights, 1e-12);
    EXPECT_NEAR(skill.squared_error, squares / weights, 1e-12);
    for (std::size_t rank = 0; rank <= members; ++rank)
      EXPECT_NEAR(skill.ranks[rank], ranks[rank] / weights, 1e-12);
  }
}

// Of normal numbers: CRPS of N(0, 1) against N(0, 1) is 1/√π (Gneiting and Raftery 2007) for any
// number of members, the ratio 1, ranks even. With half the spread the ratio is about half.
TEST(EnsembleSkill, OfMembersThatCouldBeTheTruth) {
  const Weighting weighting{"", {1}};
  for (const std::size_t members : {2U, 5U, 20U}) {
    EnsembleTable table(1, 1, members);
    table.add(0, 0, random_ensemble(members, 200000, 5).skill(weighting));
    EXPECT_NEAR(table.crps()[0], 1 / std::sqrt(std::numbers::pi), 0.005);
    EXPECT_NEAR(table.spread()[0], 1, 0.01);
    EXPECT_NEAR(table.spread_skill_ratio()[0], 1, 0.01);
    for (const double share : table.ranks())
      EXPECT_NEAR(share, 1 / static_cast<double>(members + 1), 0.004);
    EnsembleTable narrow(1, 1, members);
    narrow.add(0, 0, random_ensemble(members, 200000, 6, 0.5).skill(weighting));
    EXPECT_GT(narrow.crps()[0], table.crps()[0]);
    EXPECT_LT(narrow.spread_skill_ratio()[0], 0.7);
    EXPECT_GT(narrow.ranks().front(), table.ranks().front());
  }
}

TEST(EnsembleSkill, EqualMembersShareTheirRank) {
  const Weighting weighting{"", {1}};
  const Ensemble ensemble{{{1}, {1}, {2}}, {1}};
  const EnsembleSkill skill = ensemble.skill(weighting);
  EXPECT_EQ(skill.ranks, (std::vector<double>{0.5, 0, 0.5, 0}));
  EnsembleTable table(2, 1, 3);
  table.add(0, 0, skill);
  EXPECT_TRUE(std::isnan(table.crps()[1]));
  EXPECT_TRUE(std::isnan(table.spread_skill_ratio()[1]));
}

}  // namespace
}  // namespace garonne::train
