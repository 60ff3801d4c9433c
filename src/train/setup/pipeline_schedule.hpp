// The pipeline schedule that a run file asks for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/session.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// Of all stages, for the micro-batches of `setup`, which is of all stages or of any. Throws
// ConfigError by the keys of the run file (grid.schedule, grid.schedule_file, grid.pipeline,
// grid.chunks, grid.group_size, train.global_batch).
plan::PipelineSchedule pipeline_schedule_of(const Setup& setup);

// What there is beside the stages of a pipeline.
struct OtherAxes {
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  int zero = 0;
};

// A line that says how Programs run the passes that `schedule`, as people know it, lets overlap.
std::string overlap_note(const std::string& schedule, const OtherAxes& others);

// That line where the pipeline of `setup` has such a schedule, else empty. Throws as
// pipeline_schedule_of.
std::string describe_overlaps(const Setup& setup);

// Whether the plan of a stage runs one after the other what overlap_note() says overlaps.
bool runs_in_turn(const Setup& stage, const plan::Program& program);

// A line that names those stages; empty where there are none.
std::string in_turn_note(const std::vector<int>& stages);
// The same of a run, whose rank has this stage and Program. Collective.
std::string in_turn_note(const Setup& stage, const plan::Program& program, dist::Session& session);

}  // namespace garonne::train
