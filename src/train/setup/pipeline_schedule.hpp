// The pipeline schedule that a run file asks for.
#pragma once

#include "plan/pipeline/schedule_registry.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// Of all stages, for the micro-batches of `setup`, which is of all stages or of any. Throws
// ConfigError by the keys of the run file (grid.schedule, grid.schedule_file, grid.pipeline,
// grid.chunks, grid.group_size, train.global_batch).
plan::PipelineSchedule pipeline_schedule_of(const Setup& setup);

}  // namespace garonne::train
