// Pictures of simulated pipelines, as text and SVG, and the table that compares schedules.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/error.hpp"
#include "plan/pipeline/comparison.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/slow_pipeline.hpp"
#include "plan/pipeline/timeline_svg.hpp"
#include "plan/pipeline/timeline_text.hpp"

namespace garonne::plan::test {
namespace {

struct Simulated {
  PipelineSchedule schedule;
  PipelineOutcome outcome;
};

Simulated simulated(const std::string& name, const PipelineRequest& wanted,
                    std::optional<double> overlap_gain = std::nullopt) {
  Simulated result{make_pipeline_schedule(name, wanted), {}};
  PipelineCosts costs = even_costs(result.schedule, {1, 1, 1});
  costs.overlap_gain = overlap_gain;
  result.outcome = simulate_pipeline(result.schedule, costs);
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(TimelineText, ByHand) {
  const auto [schedule, outcome] = simulated("varuna", request(2, 1));
  // 10 characters of margin, one to close, and five for each of 6 seconds. A recompute needs
  // nothing but its own input and starts as soon as its turn has come.
  EXPECT_EQ(timeline_text(schedule, outcome, 41, false),
            "device 0 │F0---R0---··········B0--------│\n"
            "device 1 │·····F0---B0--------··········│\n"
            "          0                        5\n"
            "F forward, B backward, R recompute, number = micro-batch, · idle\n");
}

TEST(TimelineText, OperationsThatRunTogetherShareTheirTime) {
  const auto [schedule, outcome] = simulated("dualpipev", request(1, 2), 0.0);
  // Six seconds: F0 f0 F1 b0 (half, half, half, one), then f1 beside B0, then b1 I1 W1.
  const std::string lane = lines_of(timeline_text(schedule, outcome, 71, false)).front();
  EXPECT_EQ(lane, "device 0 │F0---f0---F1---b0--------f1------B0-----b1--------I1---W1---│");
}

TEST(TimelineText, ManyDevicesAndColours) {
  const auto [schedule, outcome] = simulated("1f1b", request(100, 1));
  const auto lines = lines_of(timeline_text(schedule, outcome, 80, false));
  ASSERT_EQ(lines.size(), 64u + 1 + 2);
  EXPECT_EQ(lines[32].substr(lines[32].find('(')), "(36 more)");
  EXPECT_EQ(lines[33].rfind("device 68 ", 0), 0u);
  const Simulated few = simulated("1f1b", request(2, 2));
  const std::string coloured = timeline_text(few.schedule, few.outcome, 80, true);
  EXPECT_NE(coloured.find("\x1b[38;5;231;48;5;25m"), std::string::npos);
}

TEST(TimelineText, MarksOfAnAxis) {
  EXPECT_DOUBLE_EQ(round_step(0.3), 0.5);
  EXPECT_DOUBLE_EQ(round_step(1), 1);
  EXPECT_DOUBLE_EQ(round_step(1.01), 2);
  EXPECT_DOUBLE_EQ(round_step(5.1), 10);
  EXPECT_DOUBLE_EQ(round_step(700), 1000);
}

TEST(TimelineSvg, DrawsEveryOperationOnce) {
  for (const char* name : {"gpipe", "interleaved", "varuna", "chimera", "zb-v", "dualpipev"}) {
    const auto [schedule, outcome] = simulated(name, request(4, 8));
    const std::string picture = timeline_svg(schedule, outcome);
    for (const auto& order : schedule.order) {
      for (const PipelineOperation& operation : order) {
        EXPECT_NE(picture.find("<title>" + describe(operation) + ","), std::string::npos);
      }
    }
    EXPECT_NE(picture.find("recompute</text>") != std::string::npos, schedule.recomputed.empty());
  }
  PipelineSchedule schedule = make_pipeline_schedule("gpipe", request(2, 2));
  schedule.name = "<b> & co";
  const std::string picture =
      timeline_svg(schedule, simulate_pipeline(schedule, even_costs(schedule, {1, 1, 1})));
  EXPECT_NE(picture.find("&lt;b&gt; &amp; co"), std::string::npos);
}

TEST(TimelineSvg, RefusesWhatNobodyCanLookAt) {
  const auto [schedule, outcome] = simulated("gpipe", request(64, 1000));
  EXPECT_THROW(timeline_svg(schedule, outcome), ConfigError);
}

TEST(Comparison, OneRowASchedule) {
  PipelineRequest wanted = request(3, 9);
  wanted.chunks = 3;
  const auto even = [](const PipelineSchedule& schedule) {
    return even_costs(schedule, {1, 1, 1});
  };
  const auto rows = compare_pipeline_schedules(wanted, even);
  ASSERT_EQ(rows.size(), pipeline_schedule_kinds().size() - 1);
  for (const ScheduleComparison& row : rows) {
    EXPECT_EQ(row.outcome.has_value(), row.refusal.empty()) << row.name;
    EXPECT_EQ(row.name == "chimera", !row.outcome.has_value());
    if (row.name == "interleaved") {
      EXPECT_EQ(row.chunks, 3);
      EXPECT_NEAR(row.outcome->bubble, 2, 1e-9);
    }
    EXPECT_NE(format_comparison(rows).find("\n" + row.name + " "), std::string::npos);
  }
  EXPECT_THROW(compare_pipeline_schedules(request(0, 9), even), ConfigError);
}

}  // namespace
}  // namespace garonne::plan::test
