// A host that issues ahead of its device, beside one that waits for each message of the pipeline
// and before it loads a micro-batch.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/program_within.hpp"

namespace garonne::plan {
namespace {

using namespace test;

constexpr double issue = 1.0;  // of a pass of a node

// A node for each stage, the last of them the loss, that take the device no time.
ModelGraph slow_to_issue(int stages) {
  ModelGraph graph = chain(std::max(1, stages - 1), 1);
  for (NodeSpec& node : graph.nodes) {
    for (OperationCost* cost : {&node.forward, &node.forward_keep, &node.backward}) {
      cost->seconds = 0;
      cost->issue_seconds = issue;
    }
  }
  return graph;
}

// Messages take `message` seconds, backwards `backward` of the device.
double seconds_of(int stages, int micro_batches, const std::string& schedule_name, HostIssue host,
                  double message = 0, double backward = 0) {
  const ModelGraph whole = slow_to_issue(stages);
  PipelineRequest request;
  request.stages = stages;
  request.micro_batches = micro_batches;
  const PipelineSchedule schedule = make_pipeline_schedule(schedule_name, request);
  std::vector<Program> programs;
  for (int stage = 0; stage < stages; ++stage) {
    PipelineStage cut = make_pipeline_stage(whole, schedule, stage);
    StepShape step = step_shape(micro_batches, 1, 0);
    step.world_group.clear();
    for (int rank = 0; rank < stages; ++rank) step.world_group.push_back(rank);
    step.data_group = {stage};
    step.update_seconds_per_element = step.norm_seconds_per_element = 0;
    step.pipeline = std::move(cut.place);
    step.pipeline.group = step.world_group;
    const ModelGraph& graph = cut.cut.graph;
    const NodeSchedule kept = recompute_on_demand(graph, keep_everything(graph));
    programs.push_back(make_training_program(graph, step, same_for_all(kept, micro_batches)));
    programs.back().rank = stage;
    for (Instruction& instruction : programs.back().instructions) {
      const bool sent = is_message(instruction.operation);
      instruction.seconds = sent ? message : is_backward(instruction.operation) ? backward : 0;
    }
  }
  double seconds = 0;
  for (const Prediction& prediction : replay_pipeline(std::move(programs), {host}))
    seconds = std::max(seconds, prediction.seconds);
  return seconds;
}

TEST(HostIssue, IssuesAheadOfWhatItsDeviceWaitsFor) {
  // All hosts issue at once: a forward and a backward for each micro-batch.
  for (const int stages : {2, 4}) {
    EXPECT_NEAR(seconds_of(stages, 1, "gpipe", HostIssue::Ahead), 2 * issue, 1e-6);
    EXPECT_NEAR(seconds_of(stages, 3, "gpipe", HostIssue::Ahead), 6 * issue, 1e-6);
  }
}

TEST(HostIssue, ComputesNothingWhileWhatItMadeIsOnItsWay) {
  // Of two stages the first sends each micro-batch before it begins with the next; the last of
  // gpipe's forwards is behind a pass and a message for each, the step behind as many backwards.
  constexpr double message = 0.25;
  for (const int micro_batches : {1, 2, 4}) {
    EXPECT_NEAR(seconds_of(2, micro_batches, "gpipe", HostIssue::Waits, message),
                2 * (micro_batches + 1) * issue + 2 * micro_batches * message, 1e-6)
        << micro_batches << " micro-batches";
  }
}

TEST(HostIssue, WaitsForThemBeforeItGoesOn) {
  // As if it were the device that takes so long: (micro-batches + stages - 1) of both passes.
  for (const int stages : {2, 4}) {
    for (const int micro_batches : {1, 4}) {
      for (const char* schedule : {"gpipe", "1f1b"}) {
        EXPECT_NEAR(seconds_of(stages, micro_batches, schedule, HostIssue::Waits),
                    2 * (micro_batches + stages - 1) * issue, 1e-6)
            << schedule << " " << stages << " stages, " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST(HostIssue, IsNoMatterOfOneStageWhoseDeviceIsThrough) {
  EXPECT_EQ(seconds_of(1, 3, "gpipe", HostIssue::Waits),
            seconds_of(1, 3, "gpipe", HostIssue::Ahead));
}

TEST(HostIssue, WaitsForTheDeviceBeforeItLoadsAMicroBatch) {
  // A micro-batch is two forwards and two backwards, of which the device begins the first when
  // three passes are issued; if the host is ahead, only those of the first micro-batch keep it
  // waiting.
  constexpr double backward = 3;
  for (const int micro_batches : {1, 2, 5}) {
    EXPECT_NEAR(seconds_of(1, micro_batches, "1f1b", HostIssue::Waits, 0, backward),
                micro_batches * (3 * issue + 2 * backward), 1e-6);
    EXPECT_NEAR(seconds_of(1, micro_batches, "1f1b", HostIssue::Ahead, 0, backward),
                3 * issue + micro_batches * 2 * backward, 1e-6);
  }
}

}  // namespace
}  // namespace garonne::plan
