// The order of work where there is no pipeline.
#pragma once

#include "plan/pipeline/schedule.hpp"

namespace garonne::plan {

// One device that runs a micro-batch after the other, forward and backward.
PipelineSchedule one_stage_schedule(int micro_batches);

}  // namespace garonne::plan
