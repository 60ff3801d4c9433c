// Pairs of passes that a schedule lets overlap: written by turns where they meet a tensor group.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/grid/grid_estimate.hpp"
#include "plan/program/launch_order.hpp"
#include "plan/program/passes_overlap.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/program_within.hpp"
#include "plan/step/tensor_graphs.hpp"
#include "plan/step/tensor_pipelines.hpp"

namespace garonne::plan {
namespace {

using test::of_all_ranks;
using test::outcome_of;
using test::program_of;
using test::programs_of;
using test::tensor_pipeline;
using test::tensor_ranks;
using test::TensorPipeline;

PipelineSchedule dualpipev(int stages, int micro_batches) {
  return test::schedule_named("dualpipev", stages, micro_batches);
}

PipelineSchedule without_overlaps(PipelineSchedule schedule) {
  for (auto& order : schedule.order) {
    for (PipelineOperation& operation : order) operation.overlaps_next = false;
  }
  return schedule;
}

ModelGraph model(unsigned seed, int blocks) {
  return test::with_collectives(test::chain(blocks, 2), seed);
}

std::size_t passes_beside_others(const Program& program) {
  const auto& all = program.instructions;
  return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), is_overlapped_collective));
}

// Between a collective and its wait Compute runs passes of another micro-batch.
void expect_work_beside(const Program& program) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& meeting = program.instructions[i];
    if (!is_overlapped_collective(meeting)) continue;
    EXPECT_EQ(meeting.lane, Lane::Collective);
    bool computes = false;
    std::size_t next = i + 1;
    for (; program.instructions.at(next).completes != static_cast<int>(i); ++next) {
      const Instruction& between = program.instructions[next];
      computes = computes || (between.node_index >= 0 && between.lane == Lane::Compute &&
                              between.micro_batch != meeting.micro_batch);
      EXPECT_FALSE(between.lane == Lane::Compute && between.micro_batch == meeting.micro_batch)
          << describe(between) << " within " << describe(meeting);
    }
    EXPECT_TRUE(computes) << describe(meeting);
    EXPECT_TRUE(is_finish(program.instructions.at(next + 1).operation));
  }
}

TEST(PassesOverlap, AreProvedAndMakeTheSameNumbers) {
  std::size_t beside = 0;
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    const int stages = seed % 2 == 0 ? 2 : 3;
    const PipelineSchedule schedule = dualpipev(stages, 2 * stages + 2);
    const ModelGraph whole = model(seed, 3 * stages);
    for (const std::string policy : {"keep-all", "full"}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + policy);
      const TensorPipeline grid = tensor_pipeline(schedule, whole);
      const TensorPipeline plain = tensor_pipeline(without_overlaps(schedule), whole);
      const std::vector<Program> programs = programs_of(grid, policy);
      const std::vector<Program> all = of_all_ranks(grid, programs);
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        EXPECT_NO_THROW(replay(all[rank]));
        EXPECT_NO_THROW(prove(all[rank], grid.graphs[rank / tensor_ranks]));
        expect_work_beside(all[rank]);
        beside += passes_beside_others(all[rank]);
      }
      EXPECT_NO_THROW(replay_together(all));
      EXPECT_NO_THROW(check_lanes(all, grid.lane_numbers));
      EXPECT_NO_THROW(check_launch_order(all, grid.lane_numbers));
      const test::Outcome wanted = outcome_of(
          plain, of_all_ranks(plain, programs_of(plain, policy)), test::LaneTiming::Late);
      ASSERT_EQ(wanted.failed, "");
      EXPECT_FALSE(wanted.poisoned);
      for (const test::LaneTiming timing :
           {test::LaneTiming::Early, test::LaneTiming::Late, test::LaneTiming::Random}) {
        const test::Outcome outcome = outcome_of(grid, all, timing);
        EXPECT_EQ(outcome.failed, "");
        EXPECT_EQ(outcome, wanted);
      }
    }
  }
  EXPECT_GT(beside, 100U);
}

TEST(PassesOverlap, ComeToAnEnd) {
  std::size_t beside = 0;
  for (const int stages : {2, 3, 4}) {
    const ModelGraph whole = model(5, 2 * stages);
    for (const int micro_batches : {1, 2, 3, 5, 8, 13}) {
      SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(micro_batches));
      const TensorPipeline grid = tensor_pipeline(dualpipev(stages, micro_batches), whole);
      const std::vector<Program> all = of_all_ranks(grid, programs_of(grid, "full"));
      EXPECT_NO_THROW(replay_together(all));
      EXPECT_NO_THROW(check_lanes(all, grid.lane_numbers));
      EXPECT_NO_THROW(check_launch_order(all, grid.lane_numbers));
      for (const Program& program : all) beside += passes_beside_others(program);
    }
  }
  EXPECT_GT(beside, 100U);
}

// Collectives that take as long as the passes between them hide behind those of the other pass.
TEST(PassesOverlap, HideCollectivesWhereTheDeviceGoesOnBesideThem) {
  const PipelineSchedule schedule = dualpipev(2, 8);
  const ModelGraph whole = model(3, 8);
  const auto seconds = [&](const PipelineSchedule& of, const Overlap& overlap) {
    std::vector<Program> programs = programs_of(tensor_pipeline(of, whole), "keep-all");
    for (Program& program : programs) {
      for (Instruction& instruction : program.instructions) {
        if (instruction.channel && instruction.arguments.exchanged >= 0) instruction.seconds = 2;
      }
    }
    const std::vector<Prediction> all = replay_pipeline(programs, overlap);
    return std::max(all[0].seconds, all[1].seconds);
  };
  const double together = seconds(schedule, {});
  const double in_turn = seconds(without_overlaps(schedule), {});
  EXPECT_LT(together, 0.95 * in_turn);
  // Where it does not go on beside them they take what they take in turn.
  EXPECT_GE(seconds(schedule, {.collectives = false}), in_turn * (1 - 1e-12));
  EXPECT_EQ(seconds(without_overlaps(schedule), {.collectives = false}), in_turn);
}

// Parameters in shards would be gathered at each turn.
TEST(PassesOverlap, DoNotWithZero3) {
  const ModelGraph met = model(2, 8);
  const PipelineSchedule overlapping = dualpipev(2, 6);
  TensorPipeline grid = tensor_pipeline(overlapping, met);
  TensorPipeline plain = tensor_pipeline(without_overlaps(overlapping), met);
  for (TensorPipeline* const one : {&grid, &plain}) {
    for (StepShape& step : one->steps) {
      step.data_group.push_back(step.data_group[0] + 4);
      step.zero = 3;
    }
  }
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const Program program = program_of(grid, stage, "full");
    EXPECT_FALSE(passes_overlap(program));
    EXPECT_EQ(program_hash(program), program_hash(program_of(plain, stage, "full")));
  }
}

// Of a stage: where the two Programs are of other bytes, the budget says which one it is.
bool falls_back(const TensorPipeline& grid, const TensorPipeline& plain, std::size_t stage) {
  const std::string policy = "full";
  const Program together = program_of(grid, stage, policy);
  const Program in_turn = program_of(plain, stage, policy);
  if (!passes_overlap(together)) return false;
  const std::int64_t most = replay(together).peak_bytes;
  const std::int64_t least = replay(in_turn).peak_bytes;
  const auto within = [&](std::int64_t budget_bytes) {
    const ModelGraph& graph = grid.graphs[stage];
    const StepShape& step = grid.steps[stage];
    return make_program_within(graph, step,
                               same_for_all(test::schedule_of(graph, policy), step.micro_batches),
                               budget_bytes);
  };
  EXPECT_TRUE(passes_overlap(within(most).program));
  if (least >= most) return false;
  const ProgramWithin fitting = within(most - 1);
  EXPECT_FALSE(passes_overlap(fitting.program));
  EXPECT_LE(fitting.prediction.peak_bytes, most - 1);
  EXPECT_EQ(fitting.least_bytes, least);
  EXPECT_EQ(program_hash(within(least).program), program_hash(in_turn));
  EXPECT_EQ(within(least - 1).least_bytes, least);
  return true;
}

TEST(PassesOverlap, RunInTurnWhereTogetherTheyHoldTooMuch) {
  int fell_back = 0;
  const PipelineSchedule schedule = dualpipev(2, 8);
  for (unsigned seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ModelGraph whole = model(seed, 8);
    const TensorPipeline grid = tensor_pipeline(schedule, whole);
    const TensorPipeline plain = tensor_pipeline(without_overlaps(schedule), whole);
    for (std::size_t stage = 0; stage < 2; ++stage)
      fell_back += falls_back(grid, plain, stage) ? 1 : 0;
  }
  EXPECT_GT(fell_back, 3);
}

// No bound of a grid is above what passes that hide their collectives can take.
TEST(PassesOverlap, AreInBoundsOfGrids) {
  Cluster cluster;
  cluster.devices_per_node = 4;
  cluster.nodes = 1;
  cluster.inside_node = {0, 1e9};
  const auto blocks = [](int, bool, std::int64_t) {
    std::vector<BlockCost> made(8);
    for (BlockCost& block : made) {
      block.forward_seconds = block.backward_seconds = 1e-3;
      block.forward_link_seconds = block.backward_link_seconds = 5e-4;
      block.cut_seconds = 3e-3;
      block.options = {{-1, 1 << 10, 0}};
    }
    return made;
  };
  GridCandidate candidate;
  candidate.shape.pipeline = candidate.shape.tensor = 2;
  candidate.schedule = "dualpipev";
  candidate.chunks = 2;
  candidate.micro_batch = 1;
  candidate.micro_batches = 8;
  const auto bound = [&] {
    return GridEstimator(cluster, std::int64_t{1} << 40, test::step_shape(1, 1, 0), blocks)
        .bounds(candidate)
        .seconds;
  };
  const double hidden = bound();
  cluster.software.overlaps_collectives = false;
  // Four blocks a device.
  EXPECT_NEAR(bound() - hidden, 8 * 4 * (5e-4 + 5e-4), 1e-9);
}

}  // namespace
}  // namespace garonne::plan
