// Pipelines whose stages have two tensor ranks each, and the Programs of all their ranks.
#pragma once

#include <string>
#include <vector>

#include "plan/pipeline/schedule.hpp"
#include "plan/program/program.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/step/pipelines.hpp"

namespace garonne::plan::test {

inline constexpr int tensor_ranks = 2;

struct TensorPipeline {
  std::vector<ModelGraph> graphs;  // by stage, as the others
  std::vector<StepShape> steps;
  int lane_numbers = 1;
};

TensorPipeline tensor_pipeline(const PipelineSchedule& schedule, const ModelGraph& whole);

Program program_of(const TensorPipeline& grid, std::size_t stage, const std::string& policy);
// Of the first tensor rank of each stage.
std::vector<Program> programs_of(const TensorPipeline& grid, const std::string& policy);
// As all ranks run them.
std::vector<Program> of_all_ranks(const TensorPipeline& grid, const std::vector<Program>& programs);
// What the interpreter comes to.
Outcome outcome_of(const TensorPipeline& grid, const std::vector<Program>& all, LaneTiming timing);

}  // namespace garonne::plan::test
