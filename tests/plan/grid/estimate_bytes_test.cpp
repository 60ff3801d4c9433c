// What estimates of grids say is kept between steps, against the buffers of the Programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/grid/block_table.hpp"
#include "plan/grid/grid_estimate.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/planners/stage_costs.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/pipelines.hpp"

namespace garonne::plan {
namespace {

struct States {
  const char* optimizer;
  std::vector<StateSpec> states;
  std::vector<TensorSums> sums = {};
};

const std::vector<States> optimizers = {
    {"adamw", {{.name = "first_moment"}, {.name = "second_moment"}}},
    {"lamb", {{.name = "first_moment"}, {.name = "second_moment"}}, {{.numbers = 2}}},
    {"adafactor",
     {{.name = "row_moment", .blocks = StateBlocks::of_side(MatrixSide::Rows)},
      {.name = "column_moment", .blocks = StateBlocks::of_side(MatrixSide::Columns)}},
     {{.numbers = 2, .sides = true}, {.numbers = 1}}},
    {"eight-bit",
     {{.name = "codes", .type = StateType::UInt8},
      {.name = "scales", .type = StateType::Float32, .blocks = {256, 1}},
      {.name = "fives", .blocks = {96, 5}}}}};

// Matrices of any sides, and vectors; some are summed over the tensor group.
void shape_parameters(ModelGraph& graph, std::mt19937& random) {
  for (ParameterSpec& parameter : graph.parameters) {
    const auto rows = static_cast<std::int64_t>(1 + random() % 40);
    const auto columns = static_cast<std::int64_t>(1 + random() % 40);
    parameter.shape = {rows, columns};
    if (random() % 4 == 0) parameter.shape = {rows * columns};
    parameter.elements = rows * columns;
    parameter.sums_over_tensor = random() % 4 == 0;
    // Of a part of a matrix the optimizer keeps what the whole has.
    if (random() % 4 == 0) parameter.stored_sides = {3 * rows, columns};
  }
}

StepShape step_of_states(const States& states, bool mixed) {
  StepShape step = test::step_shape(2, 1, 0);
  if (mixed) step.element_bytes = {2, 4, 4, 4};
  step.optimizer_states = states.states;
  step.tensor_sums = states.sums;
  step.workspaces = {{"library", 1000}};
  return step;
}

struct Kept {
  std::int64_t bytes = 0;
  std::int64_t states = 0;
};

// By the buffers of a Program that are live at its start.
Kept kept_of(const ModelGraph& graph, StepShape step, const GridCandidate& candidate,
             const PipelinePlace& place) {
  step.pipeline = place;
  step.micro_batches = static_cast<int>(candidate.micro_batches);
  step.zero = candidate.zero;
  for (int rank = 1; rank < candidate.shape.data; ++rank) step.data_group.push_back(rank);
  for (int rank = 0; rank < candidate.shape.tensor; ++rank) step.tensor_group.push_back(rank);
  step.bucket_bytes = candidate.shape.data > 1 ? candidate.bucket_bytes : 0;
  step.tensor_bucket_bytes = candidate.bucket_bytes;
  const Program program = make_training_program(
      graph, step, same_for_all(test::schedule_of(graph, "full"), step.micro_batches));
  Kept kept;
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.live_at_start) continue;
    kept.bytes += buffer.bytes;
    if (buffer.kind == BufferKind::OptimizerState) kept.states += buffer.bytes;
  }
  return kept;
}

Cluster any_cluster() {
  Cluster cluster;
  cluster.devices_per_node = 4;
  cluster.nodes = 16;
  cluster.memory_bytes = std::int64_t{1} << 40;
  cluster.inside_node = {1e-6, 10e9};
  cluster.between_nodes = {5e-6, 1e9};
  return cluster;
}

GridCandidate candidate_of(int data, int pipeline, int tensor, int zero, std::int64_t bucket) {
  GridCandidate candidate;
  candidate.shape = {data, pipeline, tensor};
  candidate.micro_batch = 1;
  candidate.micro_batches = 2;
  candidate.zero = zero;
  candidate.bucket_bytes = bucket;
  return candidate;
}

// Rank by rank: what is kept, and the gradients that wait for the update beside it.
void expect_kept(const ModelGraph& graph, const States& states, bool mixed,
                 const GridCandidate& candidate) {
  SCOPED_TRACE(std::string(states.optimizer) + " " + to_string(candidate));
  StepShape step = step_of_states(states, mixed);
  GridEstimator estimator(any_cluster(), std::int64_t{1} << 40, step,
                          [&](int, bool, std::int64_t) { return block_costs(graph); });
  std::vector<ModelGraph> stages = {graph};
  std::vector<PipelinePlace> places(1);
  if (candidate.shape.pipeline > 1) {
    stages.clear();
    places.clear();
    PipelineRequest request;
    request.stages = candidate.shape.pipeline;
    request.micro_batches = static_cast<int>(candidate.micro_batches);
    if (candidate.schedule == "interleaved") request.chunks = candidate.chunks;
    const PipelineSchedule schedule = make_pipeline_schedule(candidate.schedule, request);
    for (int stage = 0; stage < candidate.shape.pipeline; ++stage) {
      PipelineStage cut = make_pipeline_stage(graph, schedule, stage);
      for (int rank = 0; rank < candidate.shape.pipeline; ++rank) cut.place.group.push_back(rank);
      stages.push_back(std::move(cut.cut.graph));
      places.push_back(std::move(cut.place));
    }
  }
  std::int64_t most = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const Kept kept = kept_of(stages[stage], step, candidate, places[stage]);
    EXPECT_GT(kept.states, 0);
    const bool in_shards = candidate.zero >= 2 && candidate.shape.pipeline == 1;
    const std::int64_t elements = stages[stage].parameter_elements();
    const std::int64_t gradients =
        (in_shards ? elements / candidate.shape.data : elements) * step.element_bytes.gradient;
    most = std::max(most, kept.bytes + gradients);
  }
  EXPECT_EQ(estimator.bounds(candidate).bytes, most);
  EXPECT_GE(estimator.estimate(candidate).bytes, most);
}

TEST(EstimatedBytes, AreThoseOfTheProgramsBetweenSteps) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    std::mt19937 random(seed);
    ModelGraph graph = test::random_graph(seed);
    shape_parameters(graph, random);
    for (const States& states : optimizers) {
      for (int zero = 0; zero <= 3; ++zero) {
        for (const int data : {1, 2, 3}) {
          if (data == 1 && zero > 0) continue;
          for (const std::int64_t bucket : {0, 3000, 1 << 20}) {
            for (const int tensor : {1, 2}) {
              if (HasFailure()) return;
              expect_kept(graph, states, seed % 2 == 0,
                          candidate_of(data, 1, tensor, zero, bucket));
            }
          }
        }
      }
    }
  }
}

TEST(EstimatedBytes, AreThoseOfTheStagesOfPipelines) {
  std::mt19937 random(7);
  for (const std::string schedule : {"1f1b", "interleaved", "zb-v", "chimera"}) {
    for (int pipeline : {2, 3}) {
      if (schedule == "chimera" && pipeline == 3) pipeline = 4;  // it has none of odd numbers
      ModelGraph graph = test::splitting_chain(6);
      shape_parameters(graph, random);
      // As embeddings and the projection to the vocabulary.
      graph.nodes.back().parameters.push_back(graph.nodes.front().parameters.front());
      for (const States& states : optimizers) {
        for (int zero = 0; zero <= 3; ++zero) {
          for (const int data : {1, 2}) {
            if (HasFailure()) return;
            if (data == 1 && zero > 0) continue;
            GridCandidate candidate = candidate_of(data, pipeline, 1, zero, 3000);
            candidate.schedule = schedule;
            candidate.chunks = traits_of(schedule).chunks.front();
            if (schedule == "interleaved") candidate.micro_batches = pipeline;
            expect_kept(graph, states, pipeline == 2, candidate);
          }
        }
      }
    }
  }
}

// By hand: a matrix of 30 x 20, of which a number is kept for each row and each column.
TEST(EstimatedBytes, CountRowsAndColumns) {
  BlockCost block;
  block.parameters = {{.parameter = 0, .node = 0, .elements = 600, .sides = {30, 20}}};
  block.options = {{-1, 0, 0}};
  StepShape step = test::step_shape(1, 1, 0);
  step.granularity = 1;
  const auto bytes = [&](const States& states, int data, int zero) {
    step.optimizer_states = states.states;
    GridEstimator estimator(any_cluster(), std::int64_t{1} << 40, step,
                            [&](int, bool, std::int64_t) { return std::vector{block}; });
    return estimator.bounds(candidate_of(data, 1, 1, zero, 1 << 20)).bytes;
  };
  const States none{"sgd", {}};
  EXPECT_EQ(bytes(none, 1, 0), 600 * 8);
  EXPECT_EQ(bytes(optimizers[0], 1, 0), 600 * 16);
  EXPECT_EQ(bytes(optimizers[2], 1, 0), 600 * 8 + 50 * 4);
  // Two shards of 512, and every rank has the numbers of all rows and columns.
  EXPECT_EQ(bytes(optimizers[0], 2, 1), 1024 * 4 + 512 * 8 + 600 * 4);
  EXPECT_EQ(bytes(optimizers[2], 2, 1), 1024 * 4 + 50 * 4 + 600 * 4);

  TrainedSize trained;
  trained.add(block.parameters.front());
  trained.add(block.parameters.front());
  step.optimizer_states = optimizers[2].states;
  EXPECT_EQ(training_bytes(step, trained), 1200 * 8 + 100 * 4);
  EXPECT_EQ(training_bytes(step, trained, 2), 1200 * 8 + 100 * 4);
}

}  // namespace
}  // namespace garonne::plan
