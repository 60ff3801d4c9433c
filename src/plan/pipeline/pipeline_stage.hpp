// What one device of a pipeline schedule does: its parts of the model and its place among the
// others.
#pragma once

#include <vector>

#include "plan/pipeline/schedule.hpp"
#include "plan/pipeline/stage_cut.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

struct PipelineStage {
  StageCut cut;
  // `group` is empty and `tied_group` has members of the pipeline: global ranks are the caller's.
  PipelinePlace place;
};

// Device `stage` of a schedule that has been checked; the blocks of the model are dealt out by
// balanced_parts with the seconds of `cut_by`, which has the blocks of `whole`. A parameter that
// several stages use has a copy on each; those of one stage are shared with the same others. In a
// bidirectional pipeline that is every parameter. The first of the stages counts it in norms and
// checkpoints. Throws ConfigError (grid.pipeline, grid.schedule) for a model that cannot be cut so,
// a direction without a micro-batch, and weight gradients that are not made in the order of
// micro-batches.
PipelineStage make_pipeline_stage(const ModelGraph& whole, const ModelGraph& cut_by,
                                  const PipelineSchedule& schedule, int stage);
// The same, cut by its own seconds.
PipelineStage make_pipeline_stage(const ModelGraph& whole, const PipelineSchedule& schedule,
                                  int stage);

}  // namespace garonne::plan
