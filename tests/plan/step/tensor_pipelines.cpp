#include "plan/step/tensor_pipelines.hpp"

#include <utility>

#include "base/index.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::plan::test {

TensorPipeline tensor_pipeline(const PipelineSchedule& schedule, const ModelGraph& whole) {
  TensorPipeline grid;
  for (int stage = 0; stage < schedule.devices; ++stage) {
    PipelineStage cut = make_pipeline_stage(whole, schedule, stage);
    StepShape step = step_of(schedule, std::move(cut.place));
    for (int rank = 0; rank < tensor_ranks * schedule.devices; ++rank)
      step.world_group.push_back(rank);
    for (int other = 0; other < schedule.devices; ++other)
      step.pipeline.group.push_back(tensor_ranks * other);
    step.data_group = {tensor_ranks * stage};
    step.tensor_group = {tensor_ranks * stage, tensor_ranks * stage + 1};
    grid.lane_numbers = step.pipeline.lane_numbers;
    grid.steps.push_back(std::move(step));
    grid.graphs.push_back(std::move(cut.cut.graph));
  }
  return grid;
}

Program program_of(const TensorPipeline& grid, std::size_t stage, const std::string& policy) {
  const StepShape& step = grid.steps[stage];
  return make_training_program(
      grid.graphs[stage], step,
      same_for_all(schedule_of(grid.graphs[stage], policy), step.micro_batches));
}

std::vector<Program> programs_of(const TensorPipeline& grid, const std::string& policy) {
  std::vector<Program> programs;
  for (std::size_t stage = 0; stage < grid.steps.size(); ++stage) {
    programs.push_back(program_of(grid, stage, policy));
    programs.back().rank = tensor_ranks * static_cast<int>(stage);
  }
  return programs;
}

std::vector<Program> of_all_ranks(const TensorPipeline& grid,
                                  const std::vector<Program>& programs) {
  std::vector<Program> all;
  const int stages = static_cast<int>(programs.size());
  for (int rank = 0; rank < tensor_ranks * stages; ++rank) {
    const int stage = rank / tensor_ranks;
    const int tensor = rank % tensor_ranks;
    RankPlace place;
    place.rank = rank;
    place.coordinates = {0, stage, tensor};
    place.data_group = {rank};
    place.tensor_group = {tensor_ranks * stage, tensor_ranks * stage + 1};
    for (int other = 0; other < stages; ++other)
      place.pipeline_group.push_back(tensor_ranks * other + tensor);
    all.push_back(program_of_rank(programs[as_index(stage)], grid.graphs[as_index(stage)], place));
  }
  return all;
}

Outcome outcome_of(const TensorPipeline& grid, const std::vector<Program>& all, LaneTiming timing) {
  std::vector<RankProgram> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    ranks.push_back({&grid.graphs[rank / tensor_ranks], &all[rank]});
  return interpret(ranks, timing, 7);
}

}  // namespace garonne::plan::test
