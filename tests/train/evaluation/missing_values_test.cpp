// Values that are not there: left out of skill and of maps, filled before a model reads them.
#include "train/evaluation/missing_values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/evaluation/skill.hpp"
#include "train/report/skill_page.hpp"

namespace garonne::train {
namespace {

constexpr float none = std::numeric_limits<float>::quiet_NaN();

TEST(MissingValues, BecomeTheMean) {
  data::FieldStatistics statistics;
  statistics.mode = "channel";
  statistics.inputs.channels = {"a", "b"};
  statistics.inputs.mean = {3, -1};
  statistics.inputs.deviation = {2, 5};
  statistics.targets.channels = {"b"};
  statistics.targets.mean = {-1};
  statistics.targets.deviation = {5};
  const MissingValues missing(statistics, 2, 1, 2);
  std::vector<float> states = {none, 7, 8, none, 9, none, none, 4};  // two frames
  missing.fill_inputs(states);
  EXPECT_EQ(states, (std::vector<float>{3, 7, 8, -1, 9, 3, -1, 4}));
  std::vector<float> forecast = {6, none};
  missing.fill_forecast(std::vector<float>{none, 2}, forecast);
  EXPECT_EQ(forecast[0], -1);
  EXPECT_TRUE(std::isnan(forecast[1])) << "a forecast that went wrong is not hidden";
  const MissingValues plain({}, 1, 1, 3);
  states = {none, 1, none};
  plain.fill_inputs(states);
  EXPECT_EQ(states, (std::vector<float>{0, 1, 0}));
}

// As the skill of the points that are there.
TEST(FieldSkill, LeavesMissingPointsOut) {
  const Weighting weighting{"cell-area", {0.5, 1.5}};
  const std::vector<float> truth = {1, none, 3, 4, 5, none};
  const std::vector<float> forecast = {2, 100, 3, 6, none, 9};
  const std::vector<float> usual = {0, 1, 1, 2, none, 3};
  const FieldSkill skill = field_skill(forecast, truth, usual, weighting);
  EXPECT_EQ(skill.points, 3);
  const double weights = 0.5 + 0.5 + 1.5;
  EXPECT_NEAR(skill.squared_error, (0.5 * 1 + 0.5 * 0 + 1.5 * 4) / weights, 1e-15);
  EXPECT_NEAR(skill.bias, (0.5 * 1 + 1.5 * 2) / weights, 1e-15);
  EXPECT_NEAR(skill.relative_l2, std::sqrt((0.5 * 1 + 1.5 * 4) / (0.5 * 1 + 0.5 * 9 + 1.5 * 16)),
              1e-15);
  const double product = 0.5 * 2 * 1 + 0.5 * 2 * 2 + 1.5 * 4 * 2;
  const double squares = (0.5 * 4 + 0.5 * 4 + 1.5 * 16) * (0.5 * 1 + 0.5 * 4 + 1.5 * 4);
  EXPECT_NEAR(skill.anomaly_correlation, product / std::sqrt(squares), 1e-15);
}

TEST(FieldSkill, AForecastWithoutAValueIsNotHidden) {
  const std::vector<float> truth = {1, 2};
  const FieldSkill skill =
      field_skill(std::vector<float>{1, none}, truth, truth, {"uniform", {1, 1}});
  EXPECT_EQ(skill.points, 2);
  EXPECT_TRUE(std::isnan(skill.squared_error));
}

TEST(SkillTable, FieldsWithoutAnyValueCountAsNoSample) {
  SkillTable table(1, 1, 1);
  const std::vector<float> nothing = {none, none};
  const Weighting weighting{"uniform", {1, 1}};
  table.add(0, 0, 0, field_skill(nothing, nothing, nothing, weighting));
  EXPECT_TRUE(std::isnan(table.rmse()[0]));
  table.add(0, 0, 0,
            field_skill(std::vector<float>{3, 3}, std::vector<float>{1, 1},
                        std::vector<float>{0, 0}, weighting));
  EXPECT_DOUBLE_EQ(table.rmse()[0], 2);
}

TEST(SkillPage, BlocksAreMeansOfWhatIsThere) {
  const std::vector<float> field = {1, none, none, none, 3, none, none, none};
  const std::vector<float> means = block_means(field, 2, 4, 2, 2);
  ASSERT_EQ(means.size(), 2U);
  EXPECT_EQ(means[0], 2);
  EXPECT_TRUE(std::isnan(means[1]));
  EXPECT_EQ(quantised(std::vector<float>{none, 1, 0}, 0, 1), "AP8A");
}

}  // namespace
}  // namespace garonne::train
