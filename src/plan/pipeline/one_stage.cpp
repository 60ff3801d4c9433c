#include "plan/pipeline/one_stage.hpp"

namespace garonne::plan {

PipelineSchedule one_stage_schedule(int micro_batches) {
  PipelineSchedule schedule;
  schedule.micro_batches = micro_batches;
  schedule.order.resize(1);
  for (int m = 0; m < micro_batches; ++m) {
    schedule.order[0].push_back({PipelineWork::Forward, 0, m});
    schedule.order[0].push_back({PipelineWork::Backward, 0, m});
  }
  return schedule;
}

}  // namespace garonne::plan
