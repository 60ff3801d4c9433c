// What does not go on beside the device: sums of gradients, with makespans by hand. Copies are in
// program/lanes_test.cpp.
#include <gtest/gtest.h>

#include "plan/grid/grid_estimate.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/tensor_graphs.hpp"

namespace garonne::plan::test {
namespace {

double seconds_of(const Program& program, const Overlap& overlap = {}) {
  return replay_pipeline({program}, overlap).front().seconds;
}

Program program_of(const ModelGraph& graph, const StepShape& step) {
  Program program = make_training_program(
      graph, step, same_for_all(schedule_of(graph, "keep-all"), step.micro_batches));
  replay(program);
  prove(program, graph);
  return program;
}

bool sums_gradients(const Instruction& instruction, GroupAxis axis) {
  return (instruction.operation == Operation::AllReduce ||
          instruction.operation == Operation::ReduceScatter) &&
         instruction.lane == Lane::Collective && instruction.channel->group == axis;
}

// Three nodes with a parameter each: 1 s forward, 2 s backward and 3 s to sum its gradient.
Program summing(const ModelGraph& graph, const StepShape& step, GroupAxis axis) {
  Program program = program_of(graph, step);
  int sums = 0;
  for (Instruction& instruction : program.instructions) {
    const bool pass = is_forward(instruction.operation) || is_backward(instruction.operation);
    const bool sum = sums_gradients(instruction, axis);
    instruction.seconds = sum ? 3 : 0;
    if (pass && instruction.node != "loss")
      instruction.seconds = is_forward(instruction.operation) ? 1 : 2;
    sums += sum;
  }
  EXPECT_EQ(sums, 3);
  return program;
}

// From the first gradient on, at 5 s, the sums follow each other; or all is one after the other.
constexpr double beside = 3 + 2 + 3 * 3;
constexpr double in_turn = 3 * 1 + 3 * 2 + 3 * 3;

TEST(Overlap, OfSumsOfGradientsCanBeOff) {
  for (const int zero : {0, 2}) {
    StepShape step = step_shape(1, 2, 0);
    step.zero = zero;
    const Program program = summing(chain(3, 1), step, GroupAxis::Data);
    EXPECT_DOUBLE_EQ(seconds_of(program), beside);
    EXPECT_DOUBLE_EQ(seconds_of(program, {.collectives = false, .copies = false}), beside);
    const Prediction off = replay_pipeline({program}, {.reductions = false}).front();
    EXPECT_DOUBLE_EQ(off.seconds, in_turn);
    EXPECT_EQ(off.peak_bytes, replay(program).peak_bytes);
    // All of it is waited for on the link.
    EXPECT_DOUBLE_EQ(off.waited.data, 9);
  }
}

TEST(Overlap, OfSumsOverTensorRanksCanBeOff) {
  ModelGraph graph = chain(3, 1);
  for (ParameterSpec& parameter : graph.parameters) parameter.sums_over_tensor = true;
  const Program program = summing(graph, tensor_step_shape(1, 1, 0), GroupAxis::Tensor);
  EXPECT_DOUBLE_EQ(seconds_of(program), beside);
  EXPECT_DOUBLE_EQ(seconds_of(program, {.reductions = false, .copies = false}), beside);
  const Prediction off = replay_pipeline({program}, {.collectives = false}).front();
  EXPECT_DOUBLE_EQ(off.seconds, in_turn);
  EXPECT_EQ(off.peak_bytes, replay(program).peak_bytes);
  EXPECT_DOUBLE_EQ(off.waited.tensor, 9);
}

// What gathers parameters goes on.
TEST(Overlap, OfGathersOfParametersIsNoSum) {
  const ModelGraph graph = chain(3, 1);
  StepShape step = step_shape(1, 2, 0);
  step.zero = 3;
  Program program = program_of(graph, step);
  int gathers = 0;
  for (Instruction& instruction : program.instructions) {
    if (instruction.operation == Operation::ReduceScatter) instruction.seconds = 0;
    if (instruction.operation != Operation::AllGather) continue;
    instruction.seconds = 0.5;
    ++gathers;
  }
  ASSERT_GT(gathers, 0);
  EXPECT_EQ(seconds_of(program, {.reductions = false}), seconds_of(program));
}

// Passes that are divided at a collective block their rank in any case.
TEST(Overlap, IsNoneOfDividedPasses) {
  int met = 0;
  for (unsigned seed = 1; seed <= 6; ++seed) {
    const Program program =
        program_of(with_collectives(chain(5, 2), seed), tensor_step_shape(2, 1, 0));
    for (const Instruction& instruction : program.instructions) {
      if (instruction.arguments.exchanged < 0 || !instruction.channel) continue;
      EXPECT_EQ(instruction.lane, Lane::Compute);
      ++met;
    }
    EXPECT_EQ(seconds_of(program, {.collectives = false}), seconds_of(program));
  }
  EXPECT_GT(met, 0);
}

// 16 blocks of 1 ms a pass, whose gradients of 64 MiB travel over 1 GB/s.
TEST(Overlap, OfSumsIsInEstimatesOfGrids) {
  Cluster cluster;
  cluster.devices_per_node = 4;
  cluster.nodes = 1;
  cluster.inside_node = {0, 1e9};
  const auto blocks = [](int, bool, std::int64_t) {
    std::vector<BlockCost> made(16);
    for (std::size_t b = 0; b < made.size(); ++b) {
      BlockCost& block = made[b];
      block.forward_seconds = block.backward_seconds = 1e-3;
      block.cut_seconds = 2e-3;
      block.parameters = {{.parameter = static_cast<int>(b),
                           .node = static_cast<int>(b),
                           .elements = std::int64_t{1} << 20}};
      block.options = {{-1, 1 << 10, 0}};
    }
    return made;
  };
  GridCandidate candidate;
  candidate.shape.data = 4;
  candidate.micro_batch = 1;
  candidate.micro_batches = 1;
  candidate.bucket_bytes = 4 << 20;
  const auto estimate = [&](int zero, std::int64_t micro_batches) {
    candidate.zero = zero;
    candidate.micro_batches = micro_batches;
    GridEstimator estimator(cluster, std::int64_t{1} << 40, step_shape(1, 1, 4 << 20), blocks);
    return estimator.estimate(candidate);
  };
  const GridEstimate quick = estimate(0, 2);
  const GridEstimate quick_in_shards = estimate(2, 2);
  cluster.software.overlaps_reductions = false;
  const double bytes = 16.0 * 4 * (1 << 20);
  // 3 / 4 of them go round the ring twice.
  const double sum = 2 * 0.75 * bytes / 1e9;
  EXPECT_LT(quick.seconds, 2 * 16 * 2e-3 + sum);
  EXPECT_NEAR(estimate(0, 2).seconds, 2 * 16 * 2e-3 + sum, 1e-3 * sum);
  EXPECT_EQ(estimate(0, 2).bytes, quick.bytes);
  // In shards once round for each micro-batch, and the parameters once after the update.
  EXPECT_NEAR(estimate(2, 2).seconds, 2 * 16 * 2e-3 + (2 * sum / 2) + sum / 2, 1e-3 * sum);
  EXPECT_LT(quick_in_shards.seconds, estimate(2, 2).seconds);
}

}  // namespace
}  // namespace garonne::plan::test
