// Seconds of ranks that are made up, and which of them are named as slow.
#include "train/run/slow_ranks.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/error.hpp"
#include "train/run/phase.hpp"

namespace garonne::train {
namespace {

TEST(SlowRanks, ARankIsNamedOnceAfterEightSlowWindows) {
  SlowRankRule rule({0, 0, 0, 0});
  for (int window = 1; window <= 30; ++window) {
    const auto found = rule.take({0.1, 0.1, 0.18, 0.1});
    ASSERT_EQ(found.size(), window == 8 ? 1U : 0U) << window;
    if (found.empty()) continue;
    EXPECT_EQ(found[0].rank, 2);
    EXPECT_NEAR(found[0].times, 1.8, 1e-12);
    EXPECT_EQ(found[0].windows, 8);
  }
}

TEST(SlowRanks, TwoQuickWindowsOfTenAreForgivenAndThreeAreNot) {
  for (const int quick : {2, 3}) {
    SlowRankRule rule({0, 0, 0});
    std::size_t named = 0;
    for (int window = 0; window < 40; ++window)
      named += rule.take({0.1, window % 10 < quick ? 0.1 : 0.2, 0.1}).size();
    EXPECT_EQ(named, quick == 2 ? 1U : 0U);
  }
}

TEST(SlowRanks, NobodyIsNamedForAFifthOrForLessThanAMillisecond) {
  SlowRankRule rule({0, 0, 0, 1, 1});
  for (int window = 0; window < 30; ++window)
    EXPECT_TRUE(rule.take({0.1, 0.119, 0.1, 1e-3, 1.9e-3}).empty());
}

// Stages of a pipeline do different work.
TEST(SlowRanks, RanksAreComparedWithThoseOfTheirStage) {
  SlowRankRule rule({0, 0, 0, 1, 1, 1, 2});
  std::vector<SlowRank> found;
  for (int window = 0; window < 20; ++window)
    for (const SlowRank& one : rule.take({0.1, 0.1, 0.1, 0.4, 0.6, 0.4, 9})) found.push_back(one);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 4);
  EXPECT_NEAR(found[0].times, 1.5, 1e-12);
}

TEST(SlowRanks, OfTwoTheSlowerIsNamedAndOneAloneNever) {
  SlowRankRule two({0, 0});
  SlowRankRule one({0});
  std::size_t named = 0;
  for (int window = 0; window < 20; ++window) {
    for (const SlowRank& found : two.take({0.1, 0.15})) named += found.rank == 1 ? 1 : 100;
    EXPECT_TRUE(one.take({5}).empty());
  }
  EXPECT_EQ(named, 1U);
  EXPECT_THROW(one.take({1, 2}), InternalError);
}

// A tenth to both sides, as where other processes run now and then.
TEST(SlowRanks, NoiseNamesNobody) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> noise(0, 0.1);
  for (const int ranks : {2, 3, 8}) {
    SlowRankRule rule(std::vector<int>(static_cast<std::size_t>(ranks), 0));
    for (int window = 0; window < 500; ++window) {
      std::vector<double> seconds;
      for (int rank = 0; rank < ranks; ++rank) seconds.push_back(0.1 * noise(random));
      EXPECT_TRUE(rule.take(seconds).empty()) << ranks << " " << window;
    }
  }
}

TEST(SlowRanks, OwnWorkIsWhatWaitsForNobody) {
  plan::Program program;
  const auto add = [&](plan::Operation operation, Lane lane, bool exchanges) {
    plan::Instruction& instruction = program.instructions.emplace_back();
    instruction.operation = operation;
    instruction.lane = lane;
    if (exchanges) instruction.channel.emplace();
  };
  add(plan::Operation::Load, Lane::Compute, false);
  add(plan::Operation::Forward, Lane::Compute, false);
  add(plan::Operation::AllReduce, Lane::Compute, true);
  add(plan::Operation::AllReduce, Lane::Collective, true);
  add(plan::Operation::Wait, Lane::Compute, false);
  add(plan::Operation::Update, Lane::Compute, false);
  add(plan::Operation::Report, Lane::Compute, false);
  std::vector<plan::Measurement> measurements(program.instructions.size());
  double seconds = 1;
  for (plan::Measurement& one : measurements) one.seconds = seconds *= 2;
  EXPECT_EQ(own_seconds(program, measurements), 4 + 64);
  EXPECT_THROW(own_seconds(program, {}), InternalError);
}

TEST(Phase, SaysTheDetailOfTheMoment) {
  Phase phase;
  phase.set("step 3", "between two instructions");
  EXPECT_EQ(phase.text(), "step 3, between two instructions");
  std::string detail = "forward layer 1";
  phase.set_detail([&](const std::string& otherwise) {
    const std::string& now = detail.empty() ? otherwise : detail;
    return now.empty() ? now : now + " (after send)";
  });
  EXPECT_EQ(phase.text(), "step 3, forward layer 1 (after send)");
  detail = "";
  EXPECT_EQ(phase.text(), "step 3, between two instructions (after send)");
  phase.set("step 3", "the meeting of all ranks at its end");
  EXPECT_EQ(phase.text(), "step 3, the meeting of all ranks at its end (after send)");
  phase.set("the checkpoint of step 3");
  EXPECT_EQ(phase.text(), "the checkpoint of step 3");
}

}  // namespace
}  // namespace garonne::train
