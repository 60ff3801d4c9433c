// Pipelines of a chain, and the Programs of all their stages.
#pragma once

#include <string>
#include <vector>

#include "plan/model/model_graph.hpp"
#include "plan/pipeline/schedule.hpp"
#include "plan/program/program.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan::test {

// Every schedule that training takes.
const std::vector<std::string> pipeline_schedules = {"gpipe", "1f1b",  "interleaved", "chimera",
                                                     "zb-h1", "zb-h2", "zb-v",        "dualpipev"};

// A chain of which every second node splits its backward.
ModelGraph splitting_chain(int blocks, int nodes_a_block = 2);

PipelineSchedule schedule_named(const std::string& name, int stages, int micro_batches);
// The step of a stage, but for its groups.
StepShape step_of(const PipelineSchedule& schedule, PipelinePlace place);

struct Stages {
  std::vector<ModelGraph> graphs;
  std::vector<Program> programs;
  int lane_numbers = 1;
};

Stages stages_of(const PipelineSchedule& schedule, const ModelGraph& whole,
                 const std::string& policy);
// None where the schedule cannot be made for so many micro-batches or the model is too small.
Stages stages_of(const std::string& name, int stages, int micro_batches, const ModelGraph& whole,
                 const std::string& policy);
std::vector<Program> programs_of(const std::string& name, int stages, int micro_batches,
                                 const ModelGraph& whole, const std::string& policy);

}  // namespace garonne::plan::test
