// Pipelines of which several values cross a cut, over NCCL, whose kernels start in one order.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/launch_order.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/pipelines.hpp"

namespace garonne::plan {
namespace {

using test::pipeline_schedules;
using test::Stages;
using test::stages_of;

// A U: `skips` of the blocks on its way down are read again on its way up, each by the block that
// stands opposite.
ModelGraph u_shaped(int blocks, int skips) {
  ModelGraph graph = test::splitting_chain(blocks, 1);
  for (int block = blocks - skips; block < blocks; ++block) {
    NodeSpec& up = graph.nodes[as_index(block)];
    up.inputs.push_back(graph.nodes[as_index(blocks - 1 - block)].output);
    up.gradient_aliases.push_back(false);
    up.adds_in_place.push_back(false);
  }
  return graph;
}

// All values of a boundary in one lane, as Programs of earlier versions have them.
std::vector<Program> in_one_lane(const Stages& made, int values) {
  std::vector<Program> programs = made.programs;
  for (Program& program : programs) {
    for (Instruction& instruction : program.instructions) {
      if (!instruction.channel || !is_message(instruction.operation)) continue;
      int& tag = instruction.channel->tag;
      const int micro_batch = tag / made.lane_numbers;
      const int lane = tag % made.lane_numbers;
      tag = micro_batch * (made.lane_numbers / values) + lane / (2 * values) * 2 + lane % 2;
    }
  }
  return programs;
}

std::string refusal(const std::vector<Program>& programs, int lane_numbers) {
  try {
    check_launch_order(programs, lane_numbers);
    return "";
  } catch (const ReplayError& error) {
    return error.what();
  }
}

TEST(LaunchOrder, OfOneValueComesToAnEndInTwoLanesABoundary) {
  const ModelGraph whole = test::splitting_chain(16, 1);
  for (const auto& name : pipeline_schedules) {
    for (const int stages : {2, 4, 6}) {
      for (const int micro_batches : {1, 2, 3, 4, 8, 13}) {
        const Stages made = stages_of(name, stages, micro_batches, whole, "full");
        if (made.programs.empty()) continue;
        SCOPED_TRACE(name + " " + std::to_string(stages) + " " + std::to_string(micro_batches));
        EXPECT_EQ(refusal(made.programs, made.lane_numbers), "");
        const int parts = made.lane_numbers / 2 + 1;
        EXPECT_EQ(parts % stages, 0) << "two lanes a boundary between parts";
      }
    }
  }
}

// Values that cross one cut, or several of them, have lanes of their own.
TEST(LaunchOrder, OfSeveralValuesComesToAnEnd) {
  for (const int skips : {1, 2}) {
    const ModelGraph whole = u_shaped(16, skips);
    for (const auto& name : pipeline_schedules) {
      int accepted = 0;
      for (const int stages : {2, 3, 4}) {
        for (const int micro_batches : {1, 2, 4, 7, 8}) {
          const Stages made = stages_of(name, stages, micro_batches, whole, "full");
          if (made.programs.empty()) continue;
          SCOPED_TRACE(name + " " + std::to_string(stages) + " " + std::to_string(micro_batches));
          ASSERT_NO_THROW(replay_together(made.programs));
          ASSERT_NO_THROW(check_lanes(made.programs, made.lane_numbers));
          EXPECT_EQ(refusal(made.programs, made.lane_numbers), "");
          ++accepted;
        }
      }
      EXPECT_GT(accepted, 5) << name;
    }
  }
}

// In one lane the second value's receive starts once the first has come, and what this rank sends
// is put behind it.
TEST(LaunchOrder, OfSeveralValuesInOneLaneIsRefused) {
  const ModelGraph whole = u_shaped(16, 1);
  for (const std::string name : {"gpipe", "1f1b", "chimera", "zb-h1", "zb-h2"}) {
    SCOPED_TRACE(name);
    const Stages made = stages_of(name, 2, 4, whole, "full");
    ASSERT_EQ(made.programs.size(), 2U);
    ASSERT_EQ(made.lane_numbers, 4);
    const std::vector<Program> programs = in_one_lane(made, 2);
    // Whoever knows nothing of NCCL sees nothing.
    EXPECT_NO_THROW(replay_together(programs));
    EXPECT_NO_THROW(check_lanes(programs, made.lane_numbers / 2));
    const std::string text = refusal(programs, made.lane_numbers / 2);
    EXPECT_NE(text.find("over NCCL in a circle"), std::string::npos) << text;
    EXPECT_NE(text.find("of its own lane"), std::string::npos) << text;
  }
}

// A stage has the lanes of its boundaries and no others: each is a communicator.
TEST(LaunchOrder, LanesAreOfWhatCrosses) {
  const ModelGraph whole = u_shaped(16, 2);
  PipelineRequest request;
  request.stages = 4;
  request.micro_batches = 4;
  const PipelinePlace place =
      make_pipeline_stage(whole, make_pipeline_schedule("1f1b", request), 0).place;
  constexpr int values = 3;
  EXPECT_EQ(place.lane_numbers, 2 * 3 * values);
  std::vector<int> numbers;
  for (const PipelinePlace::Lane& lane : place.lanes) {
    EXPECT_EQ(lane.number / (2 * values), std::min(lane.from, lane.to));
    EXPECT_EQ(lane.number % 2 == 0, lane.from < lane.to);
    numbers.push_back(lane.number);
  }
  EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end());
  EXPECT_EQ(numbers.size(), 2U * 9U);
}

// A rank that sums before it hands over what the other needs to come to the sum.
TEST(LaunchOrder, ACollectiveInFrontOfAMessageIsSeen) {
  const Stages made = stages_of("1f1b", 2, 2, test::splitting_chain(8, 1), "full");
  ASSERT_EQ(made.programs.size(), 2U);
  std::vector<Program> programs = made.programs;
  Instruction sum;
  sum.operation = Operation::AllReduce;
  sum.lane = Lane::Collective;
  sum.channel = Channel{.kind = "all-reduce", .group = GroupAxis::Data, .members = {0, 1}};
  const auto put = [&](std::size_t rank, std::ptrdiff_t at) {
    auto& instructions = programs[rank].instructions;
    for (Instruction& instruction : instructions) {
      if (instruction.completes >= at) ++instruction.completes;
      for (int& earlier : instruction.after) earlier += earlier >= at ? 1 : 0;
    }
    instructions.insert(instructions.begin() + at, sum);
  };
  const auto end = static_cast<std::ptrdiff_t>(programs[1].instructions.size());
  put(0, static_cast<std::ptrdiff_t>(programs[0].instructions.size()));
  put(1, end);
  EXPECT_EQ(refusal(programs, made.lane_numbers), "");
  // On one rank it comes first: its second kernel waits for the other's first, which stands behind
  // messages of this rank.
  programs = made.programs;
  put(0, 0);
  put(1, end);
  EXPECT_NE(refusal(programs, made.lane_numbers), "");
}

}  // namespace
}  // namespace garonne::plan
