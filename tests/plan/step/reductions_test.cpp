// Reductions of gradients beside messages: what other stages wait for goes first, and bytes decide
// how many reductions are under way.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/grid/block_table.hpp"
#include "plan/grid/grid_search.hpp"
#include "plan/model/group_links.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_planner.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/program_within.hpp"

namespace garonne::plan {
namespace {

using namespace test;

constexpr std::int64_t plenty = std::int64_t{1} << 40;
constexpr std::int64_t elements = 1000;  // of every parameter, a bucket each

// Two data ranks hold half of a bucket of each other.
constexpr std::int64_t staging = 2048;

ModelGraph deep_chain(int blocks, int nodes_a_block) {
  ModelGraph graph = chain(blocks, nodes_a_block);
  for (auto& parameter : graph.parameters) {
    parameter.shape = {elements};
    parameter.elements = elements;
  }
  return graph;
}

struct Stage {
  ModelGraph graph;
  StepShape step;
};

// The stages of one of two equal pipelines. Reducing a bucket takes `seconds`.
std::vector<Stage> stages_of(const std::string& name, int stages, int micro_batches,
                             const ModelGraph& whole, int zero, double seconds) {
  PipelineRequest request;
  request.stages = stages;
  request.micro_batches = micro_batches;
  const PipelineSchedule schedule = make_pipeline_schedule(name, request);
  std::vector<Stage> made;
  for (int stage = 0; stage < stages; ++stage) {
    PipelineStage cut = make_pipeline_stage(whole, schedule, stage);
    StepShape step = step_shape(micro_batches, 1, 0);
    step.zero = zero;
    step.world_group.clear();
    for (int rank = 0; rank < 2 * stages; ++rank) step.world_group.push_back(rank);
    step.data_group = {stage, stages + stage};
    step.links.data.link.bytes_per_second = 4 * elements / seconds;
    step.pipeline = std::move(cut.place);
    for (int rank = 0; rank < stages; ++rank) step.pipeline.group.push_back(rank);
    made.push_back({std::move(cut.cut.graph), std::move(step)});
  }
  return made;
}

// Of a step.
struct Outcome {
  double seconds = 0;
  std::int64_t bytes = 0;  // the highest peak of a stage
};

Outcome together(std::vector<Program> programs) {
  for (std::size_t stage = 0; stage < programs.size(); ++stage)
    programs[stage].rank = static_cast<int>(stage);
  Outcome outcome;
  for (const auto& prediction : replay_pipeline(std::move(programs))) {
    outcome.seconds = std::max(outcome.seconds, prediction.seconds);
    outcome.bytes = std::max(outcome.bytes, prediction.peak_bytes);
  }
  return outcome;
}

NodeSchedule keep_all(const ModelGraph& graph) {
  return recompute_on_demand(graph, keep_everything(graph));
}

// As Programs were before: four reductions under way, and whoever has a fifth waits for the first.
Outcome four_in_flight(const std::vector<Stage>& stages) {
  std::vector<Program> programs;
  for (const auto& [graph, shape] : stages) {
    StepShape step = shape;
    step.messages_first = false;
    step.reduction_bytes = {4 * staging};
    programs.push_back(
        make_training_program(graph, step, same_for_all(keep_all(graph), step.micro_batches)));
  }
  return together(std::move(programs));
}

Outcome within(const std::vector<Stage>& stages, std::int64_t budget_bytes) {
  std::vector<Program> programs;
  for (const auto& [graph, step] : stages) {
    programs.push_back(make_program_within(graph, step,
                                           same_for_all(keep_all(graph), step.micro_batches),
                                           budget_bytes)
                           .program);
  }
  return together(std::move(programs));
}

bool is_reduction(const Instruction& instruction) {
  return instruction.operation == Operation::AllReduce ||
         instruction.operation == Operation::ReduceScatter;
}

// Every stage used to wait for its own reductions before it let the one before go on, and the waits
// added up over the stages.
TEST(Reductions, DoNotAddUpOverStages) {
  for (const int stages : {2, 4, 8}) {
    SCOPED_TRACE(stages);
    constexpr int nodes = 10;  // of a stage
    const ModelGraph whole = deep_chain(stages, nodes);
    for (const double bucket_seconds : {1.0, 4.0}) {
      const auto slow = stages_of("1f1b", stages, stages, whole, 0, bucket_seconds);
      const auto fast = stages_of("1f1b", stages, stages, whole, 0, 1e-6);
      const double reducing = nodes * bucket_seconds;
      const double pipeline = within(fast, plenty).seconds;
      const auto [after, most_bytes] = within(slow, plenty);
      EXPECT_LE(after, pipeline + reducing);
      // With a single one under way the last stages are done late, but nobody waits for them.
      const auto [lean, least_bytes] = within(slow, 0);
      EXPECT_LE(lean, pipeline + reducing + 2 * bucket_seconds);
      const auto [before, before_bytes] = four_in_flight(slow);
      EXPECT_LE(after, before + 1e-9);
      EXPECT_LE(least_bytes, before_bytes);
      fmt::print(
          "{} stages, {} s a bucket: {} s without reductions; {} s and {} B before; now {} s "
          "and {} B, {} s and {} B at least\n",
          stages, bucket_seconds, pipeline, before, before_bytes, after, most_bytes, lean,
          least_bytes);
      if (bucket_seconds > 2) {
        const double a_stage = (nodes - 4) * (bucket_seconds - 2);
        EXPECT_GE(before, after + (stages - 1) * a_stage / 3) << "not what this is to show";
      }
    }
  }
}

TEST(Reductions, AreWaitedForAfterTheLastMessage) {
  int begun_before = 0;
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    for (int zero = 0; zero <= 3; ++zero) {
      const auto stages = stages_of(name, 4, 8, deep_chain(16, 2), zero, 4);
      for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        for (const std::int64_t bytes : {std::int64_t{0}, 3 * staging, plenty}) {
          SCOPED_TRACE(name + " ZeRO " + std::to_string(zero) + " stage " + std::to_string(stage));
          StepShape step = stages[stage].step;
          step.reduction_bytes = {bytes};
          const ModelGraph& graph = stages[stage].graph;
          const Program program =
              make_training_program(graph, step, same_for_all(keep_all(graph), step.micro_batches));
          ASSERT_NO_THROW(prove(program, graph));
          const auto& all = program.instructions;
          const auto last = std::find_if(all.rbegin(), all.rend(), [](const auto& one) {
                              return one.operation == Operation::Send;
                            }).base();
          for (auto one = all.begin(); one != last; ++one) {
            if (one->operation == Operation::Wait) {
              EXPECT_FALSE(is_reduction(all[as_index(one->completes)])) << describe(*one);
            }
            if (!is_reduction(*one)) continue;
            ++begun_before;
            EXPECT_LT(zero, 3) << "gathers queue behind " << describe(*one);
          }
        }
      }
    }
  }
  EXPECT_GT(begun_before, 100);
}

// What a reduction holds until its wait: staging, and gradients that are gone then.
TEST(Reductions, HoldNoMoreThanTheyMay) {
  for (int zero = 0; zero <= 3; ++zero) {
    for (const bool messages_first : {false, true}) {
      const auto stages = stages_of("1f1b", 3, 6, deep_chain(12, 2), zero, 4);
      for (const auto& stage : stages) {
        StepShape step = stage.step;
        step.messages_first = messages_first;
        for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{9000}, plenty}) {
          step.reduction_bytes = {bytes};
          const Program program = make_training_program(
              stage.graph, step, same_for_all(keep_all(stage.graph), step.micro_batches));
          const auto held_by = [&](const Instruction& one) {
            std::int64_t held = 0;
            for (const int id : one.writes) {
              const BufferKind kind = program.buffers[as_index(id)].kind;
              const bool goes = one.operation == Operation::ReduceScatter && zero >= 2;
              if (kind == BufferKind::Communication || goes)
                held += program.buffers[as_index(id)].bytes;
            }
            return held;
          };
          std::int64_t held = 0;
          int under_way = 0;
          int most = 0;
          for (const Instruction& one : program.instructions) {
            if (one.operation == Operation::SumSquares) break;
            if (is_reduction(one)) {
              held += held_by(one);
              most = std::max(most, ++under_way);
              EXPECT_TRUE(under_way == 1 || held <= bytes);
            }
            if (one.operation != Operation::Wait) continue;
            const Instruction& waited = program.instructions[as_index(one.completes)];
            if (!is_reduction(waited)) continue;
            held -= held_by(waited);
            --under_way;
          }
          EXPECT_EQ(under_way, 0);
          if (bytes == 0) {
            EXPECT_EQ(most, 1);
          }
          if (bytes == plenty && zero == 0) {
            EXPECT_GT(most, 4);
          }
        }
      }
    }
  }
}

TEST(Reductions, TakeWhatTheBudgetLeavesAndNoMore) {
  for (int zero = 0; zero <= 3; ++zero) {
    const auto stages = stages_of("1f1b", 4, 8, deep_chain(16, 4), zero, 3);
    for (const auto& [graph, step] : stages) {
      SCOPED_TRACE(zero);
      const StepSchedule schedule = same_for_all(keep_all(graph), step.micro_batches);
      const ProgramWithin least = make_program_within(graph, step, schedule, 0);
      const ProgramWithin most = make_program_within(graph, step, schedule, plenty);
      EXPECT_EQ(most.wanted_bytes, 0);
      EXPECT_LE(most.prediction.seconds, least.prediction.seconds);
      double before = least.prediction.seconds;
      const std::int64_t more = most.prediction.peak_bytes - least.least_bytes;
      for (int part = 0; part <= 8; ++part) {
        const std::int64_t budget = least.least_bytes + more * part / 8;
        const ProgramWithin made = make_program_within(graph, step, schedule, budget);
        EXPECT_LE(replay(made.program).peak_bytes, budget);
        EXPECT_EQ(made.least_bytes, least.least_bytes);
        EXPECT_LE(made.prediction.seconds, before + 1e-9);
        EXPECT_NO_THROW(prove(made.program, graph));
        before = made.prediction.seconds;
      }
      EXPECT_DOUBLE_EQ(before, most.prediction.seconds);
    }
  }
}

TEST(Reductions, PlansKeepTheirBudget) {
  for (int zero = 0; zero <= 3; ++zero) {
    for (const int micro_batches : {1, 4}) {
      for (const auto& [graph, step] :
           stages_of("1f1b", 2, micro_batches, deep_chain(6, 2), zero, 3)) {
        SCOPED_TRACE(zero);
        const StagePlan fast = plan_stage(graph, step, {plenty, "greedy"});
        const std::int64_t least = fast.minimum_budget_bytes;
        const double seconds = fast.prediction.seconds;
        for (const int part : {3, 1, 0}) {
          const std::int64_t budget = least + (fast.prediction.peak_bytes - least) * part / 4;
          const StagePlan plan = plan_stage(graph, step, {budget, "greedy"});
          EXPECT_LE(replay(plan.program).peak_bytes, budget);
          EXPECT_EQ(plan.minimum_budget_bytes, least);
          EXPECT_GE(plan.prediction.seconds, seconds - 1e-9);
          EXPECT_NO_THROW(prove(plan.program, graph));
        }
      }
    }
  }
}

// A search over grids ranks them by estimates, and plans only the first.
TEST(Reductions, AreEstimatedAsTheyAreReplayed) {
  constexpr int blocks = 2;  // of a stage
  constexpr int nodes = 4;   // of a block
  for (const int stages : {2, 4, 8}) {
    SCOPED_TRACE(stages);
    GridCandidate candidate;
    candidate.shape = {2, stages, 1};
    candidate.micro_batches = 2 * stages;
    candidate.bucket_bytes = 4 * elements * nodes;
    Cluster cluster;
    cluster.devices_per_node = 2;  // the data ranks of a stage
    cluster.nodes = stages;
    cluster.inside_node.bytes_per_second = static_cast<double>(candidate.bucket_bytes) / 16;
    cluster.between_nodes.bytes_per_second = 1e9;
    ModelGraph whole = deep_chain(blocks * stages, nodes);
    for (auto& node : whole.nodes) node.forward_keep.seconds = node.forward.seconds;
    GridEstimator estimator(cluster, plenty, step_shape(1, 1, candidate.bucket_bytes),
                            [&](int, bool, std::int64_t) { return block_costs(whole); });
    const double estimated = estimator.estimate(candidate).seconds;
    auto made = stages_of(candidate.schedule, stages, 2 * stages, whole, 0, 1);
    const GridLinks links(cluster, Grid(candidate.shape));
    for (int stage = 0; stage < stages; ++stage) {
      StepShape& step = made[as_index(stage)].step;
      step.bucket_bytes = candidate.bucket_bytes;
      step.links = links.of_stage(stage, {});
      ASSERT_EQ(step.links.data.link, cluster.inside_node);
    }
    EXPECT_NEAR(within(made, plenty).seconds / estimated, 1, 0.05);
  }
}

// One pipeline stage: nobody waits for messages, and a step is never longer than it was.
TEST(Reductions, OfOneStageWaitForRoomAsTheyDid) {
  const ModelGraph graph = deep_chain(10, 4);
  for (const double bucket_seconds : {0.5, 1.9, 8.0}) {
    StepShape step = step_shape(2, 2, 0);
    step.links.data.link.bytes_per_second = 4 * elements / bucket_seconds;
    const StepSchedule schedule = same_for_all(keep_all(graph), 2);
    StepShape four = step;
    four.reduction_bytes = {4 * staging};
    const Prediction before = replay(make_training_program(graph, four, schedule));
    const ProgramWithin after = make_program_within(graph, step, schedule, before.peak_bytes);
    EXPECT_LE(after.prediction.seconds, before.seconds + 1e-9);
    EXPECT_LE(after.prediction.peak_bytes, before.peak_bytes);
    EXPECT_LE(after.least_bytes, before.peak_bytes);
  }
}

}  // namespace
}  // namespace garonne::plan
