#include "plan/step/pipelines.hpp"

#include <utility>

#include "base/error.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {

ModelGraph splitting_chain(int blocks, int nodes_a_block) {
  ModelGraph graph = chain(blocks, nodes_a_block);
  for (std::size_t n = 0; n + 1 < graph.nodes.size(); n += 2) {
    NodeSpec& node = graph.nodes[n];
    node.private_slot_bytes.clear();
    node.splits_backward = true;
    node.backward_weight.seconds = 1;
    node.backward.seconds = 1;
  }
  return graph;
}

PipelineSchedule schedule_named(const std::string& name, int stages, int micro_batches) {
  PipelineRequest request;
  request.stages = stages;
  request.micro_batches = micro_batches;
  return make_pipeline_schedule(name, request);
}

StepShape step_of(const PipelineSchedule& schedule, PipelinePlace place) {
  StepShape step;
  step.micro_batches = schedule.micro_batches;
  step.optimizer_states = {{.name = "first_moment"}};
  step.pipeline = std::move(place);
  return step;
}

Stages stages_of(const PipelineSchedule& schedule, const ModelGraph& whole,
                 const std::string& policy) {
  Stages made;
  for (int stage = 0; stage < schedule.devices; ++stage) {
    PipelineStage cut = make_pipeline_stage(whole, schedule, stage);
    StepShape step = step_of(schedule, std::move(cut.place));
    for (int rank = 0; rank < schedule.devices; ++rank) {
      step.world_group.push_back(rank);
      step.pipeline.group.push_back(rank);
    }
    step.data_group = {stage};
    made.programs.push_back(make_training_program(
        cut.cut.graph, step,
        same_for_all(schedule_of(cut.cut.graph, policy), schedule.micro_batches)));
    made.programs.back().rank = stage;
    replay(made.programs.back());
    prove(made.programs.back(), cut.cut.graph);
    made.graphs.push_back(std::move(cut.cut.graph));
    made.lane_numbers = step.pipeline.lane_numbers;
  }
  return made;
}

Stages stages_of(const std::string& name, int stages, int micro_batches, const ModelGraph& whole,
                 const std::string& policy) {
  try {
    return stages_of(schedule_named(name, stages, micro_batches), whole, policy);
  } catch (const ConfigError&) {
    return {};
  }
}

std::vector<Program> programs_of(const std::string& name, int stages, int micro_batches,
                                 const ModelGraph& whole, const std::string& policy) {
  return stages_of(name, stages, micro_batches, whole, policy).programs;
}

}  // namespace garonne::plan::test
