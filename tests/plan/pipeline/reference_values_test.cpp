// Makespans and peaks that are known from elsewhere: from published formulas and from a simulation
// by another hand. P stages, M micro-batches, costs of one micro-batch on one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/simulation.hpp"

namespace garonne::plan::test {
namespace {

struct Case {
  std::string schedule;
  int stages;
  int micro_batches;
  PhaseSeconds seconds;
  double makespan;
  std::optional<int> chunks = std::nullopt;
  std::optional<double> overlap_gain = std::nullopt;
};

PipelineOutcome simulate(const Case& given) {
  PipelineRequest request;
  request.stages = given.stages;
  request.micro_batches = given.micro_batches;
  request.chunks = given.chunks;
  const PipelineSchedule schedule = make_pipeline_schedule(given.schedule, request);
  PipelineCosts costs = even_costs(schedule, given.seconds);
  costs.overlap_gain = given.overlap_gain;
  return simulate_pipeline(schedule, costs);
}

constexpr PhaseSeconds equal = {1, 1, 1};
constexpr PhaseSeconds slow_input = {1, 1.2, 0.8};
constexpr PhaseSeconds slow_weight = {1, 0.8, 1.2};
constexpr PhaseSeconds very_slow_input = {1, 1.4, 0.6};

class Makespan : public testing::TestWithParam<Case> {};

TEST_P(Makespan, IsTheKnownOne) {
  const Case& given = GetParam();
  const PipelineOutcome outcome = simulate(given);
  EXPECT_NEAR(outcome.makespan, given.makespan, 1e-9);
  EXPECT_NEAR(outcome.bubble, given.makespan - given.micro_batches * given.seconds.sum(), 1e-9);
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}_{}_{}", info.index, info.param.schedule, info.param.stages,
                                 info.param.micro_batches);
  for (char& letter : name) letter = letter == '-' ? '_' : letter;
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    EqualPhases, Makespan,
    testing::Values(Case{"gpipe", 4, 8, equal, 33}, Case{"1f1b", 4, 8, equal, 33},
                    Case{"interleaved", 4, 8, equal, 28.5, 2},
                    Case{"interleaved", 4, 8, equal, 26.25, 4}, Case{"zb-h1", 4, 8, equal, 27},
                    Case{"zb-h2", 4, 8, equal, 27}, Case{"zb-v", 4, 8, equal, 25.5},
                    Case{"dualpipev", 4, 8, equal, 25.5},
                    Case{"dualpipev", 4, 8, equal, 27, std::nullopt, 0.0},
                    Case{"gpipe", 8, 16, equal, 69}, Case{"1f1b", 8, 16, equal, 69},
                    Case{"interleaved", 8, 16, equal, 58.5, 2},
                    Case{"interleaved", 8, 16, equal, 53.25, 4}, Case{"zb-h1", 8, 16, equal, 55},
                    Case{"zb-h2", 8, 16, equal, 55}, Case{"zb-v", 8, 16, equal, 51.5},
                    Case{"dualpipev", 8, 16, equal, 51.5},
                    Case{"dualpipev", 8, 16, equal, 55, std::nullopt, 0.0}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    UnequalPhases, Makespan,
    testing::Values(Case{"1f1b", 4, 8, slow_input, 33},
                    Case{"interleaved", 4, 8, slow_input, 28.5, 2},
                    Case{"zb-h1", 4, 8, slow_input, 28.2}, Case{"zb-h2", 4, 8, slow_input, 27},
                    Case{"zb-v", 4, 8, slow_input, 25.8}, Case{"dualpipev", 4, 8, slow_input, 26.1},
                    // Where the published formula of ZB-H1 does not hold.
                    Case{"zb-h1", 4, 8, slow_weight, 27}, Case{"zb-v", 4, 8, slow_weight, 25.7},
                    Case{"zb-h2", 4, 8, very_slow_input, 27.6},
                    Case{"zb-v", 4, 8, very_slow_input, 26.4}),
    name_of);

INSTANTIATE_TEST_SUITE_P(OverlapOfAFifth, Makespan,
                         testing::Values(Case{"dualpipev", 4, 8, equal, 24, std::nullopt, 0.2},
                                         Case{"dualpipev", 8, 20, equal, 58, std::nullopt, 0.2},
                                         Case{"dualpipev", 8, 20, equal, 67, std::nullopt, 0.0}),
                         name_of);

// Chimera in slots of forward = backward, and with backwards of two slots.
constexpr PhaseSeconds slots = {1, 1, 0};
INSTANTIATE_TEST_SUITE_P(
    Chimera, Makespan,
    testing::Values(Case{"chimera", 4, 4, slots, 8 + 2}, Case{"chimera", 4, 8, slots, 16 + 2},
                    Case{"chimera", 4, 16, slots, 32 + 2}, Case{"chimera", 8, 8, slots, 16 + 6},
                    Case{"chimera", 8, 16, slots, 32 + 6}, Case{"chimera", 8, 24, slots, 48 + 6},
                    Case{"chimera", 4, 4, equal, 12 + 4}, Case{"chimera", 4, 8, equal, 24 + 6},
                    Case{"chimera", 4, 16, equal, 48 + 10}, Case{"chimera", 8, 8, equal, 24 + 12},
                    Case{"chimera", 8, 16, equal, 48 + 18}, Case{"1f1b", 4, 16, equal, 48 + 9},
                    Case{"1f1b", 8, 8, equal, 24 + 21}),
    name_of);

INSTANTIATE_TEST_SUITE_P(Varuna, Makespan,
                         testing::Values(Case{"varuna", 4, 8, equal, 39},
                                         Case{"varuna", 8, 16, equal, 84}),
                         name_of);

struct PeakCase {
  std::string schedule;
  int stages;
  int micro_batches;
  std::vector<double> peaks;
  std::optional<int> chunks = std::nullopt;
};

class Peak : public testing::TestWithParam<PeakCase> {};

TEST_P(Peak, IsTheKnownOne) {
  const PeakCase& given = GetParam();
  for (const PhaseSeconds& seconds : {equal, slow_input, slow_weight}) {
    EXPECT_EQ(
        simulate({given.schedule, given.stages, given.micro_batches, seconds, 0, given.chunks})
            .peak_activations,
        given.peaks);
  }
}

INSTANTIATE_TEST_SUITE_P(Known, Peak,
                         testing::Values(PeakCase{"gpipe", 4, 8, {8, 8, 8, 8}},
                                         PeakCase{"1f1b", 4, 8, {4, 3, 2, 1}},
                                         PeakCase{"interleaved", 4, 8, {5.5, 4.5, 3.5, 2.5}, 2},
                                         PeakCase{"interleaved", 4, 8, {4.75, 4.25, 3.75, 3.25}, 4},
                                         PeakCase{"zb-h1", 4, 8, {4, 4, 4, 4}},
                                         PeakCase{"zb-v", 4, 8, {4, 4, 4, 4}},
                                         PeakCase{"zb-h2", 4, 8, {7, 7, 7, 7}},
                                         PeakCase{"dualpipev", 4, 8, {4.5, 4.5, 4.5, 4.5}},
                                         PeakCase{"chimera", 4, 8, {3, 4, 4, 3}},
                                         PeakCase{"chimera", 8, 16, {5, 6, 7, 8, 8, 7, 6, 5}}));

// What Varuna is compared with: every device but the last runs the forward again at the start of
// each backward.
TEST(KnownValues, RecomputationWithinTheBackward) {
  struct Known {
    const char* schedule;
    int stages;
    int micro_batches;
    double makespan;
  };
  for (const auto& [name, stages, micro_batches, makespan] :
       {Known{"1f1b", 4, 8, 42}, Known{"gpipe", 4, 8, 43}, Known{"1f1b", 8, 16, 90},
        Known{"gpipe", 8, 16, 91}}) {
    const PipelineSchedule schedule =
        make_pipeline_schedule(name, {stages, micro_batches, std::nullopt, std::nullopt, ""});
    PipelineCosts costs = even_costs(schedule, {1, 2, 1});
    costs.chunks.back() = equal;
    EXPECT_DOUBLE_EQ(simulate_pipeline(schedule, costs).makespan, makespan);
  }
}

TEST(KnownValues, VarunaStashesInputs) {
  const PipelineOutcome outcome = simulate({"varuna", 4, 8, equal, 0});
  EXPECT_EQ(outcome.peak_inputs, (std::vector<int>{8, 6, 3, 1}));
  EXPECT_EQ(outcome.peak_activations, (std::vector<double>{1, 1, 1, 1}));
}

// As the generator of Varuna's repository writes them for P = 4, M = 5.
TEST(KnownValues, VarunaOrder) {
  const PipelineSchedule schedule =
      make_pipeline_schedule("varuna", {4, 5, std::nullopt, std::nullopt, ""});
  std::vector<std::string> shown;
  for (const auto& order : schedule.order) {
    std::string text;
    for (const PipelineOperation& operation : order) {
      const char* letter = operation.work == PipelineWork::Forward     ? "F"
                           : operation.work == PipelineWork::Recompute ? "R"
                                                                       : "B";
      text += fmt::format("{}{} ", letter, operation.micro_batch);
    }
    shown.push_back(text);
  }
  const std::string early = "F0 F1 F2 F3 F4 R0 B0 R1 B1 R2 B2 R3 B3 R4 B4 ";
  EXPECT_EQ(shown,
            (std::vector<std::string>{early, early, "F0 F1 F2 R0 B0 R1 B1 R2 B2 F3 F4 R3 B3 R4 B4 ",
                                      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 "}));
}

// Zero bubble in the sense of the papers: of each device by itself, where devices may start and
// finish staggered.
TEST(KnownValues, SpansOfZeroBubbleSchedules) {
  for (const char* name : {"zb-h2", "zb-v"}) {
    for (const auto& [stages, micro_batches] : {std::pair{4, 8}, std::pair{8, 16}}) {
      for (const double span : simulate({name, stages, micro_batches, equal, 0}).spans) {
        EXPECT_DOUBLE_EQ(span, 3 * micro_batches) << name;
      }
    }
  }
}

}  // namespace
}  // namespace garonne::plan::test
