// GPipe (Huang et al. 2019, arXiv 1811.06965): all forwards, then all backwards, both in ascending
// order of micro-batches, so that gradients are summed in that order too.
#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {

PipelineSchedule make_gpipe(const PipelineRequest& request) {
  PipelineSchedule schedule = empty_schedule(request, "gpipe", 1, ChunkPlacement::Looped);
  for (auto& list : schedule.order) {
    DeviceOrder order(list, 1);
    for (int m = 0; m < schedule.micro_batches; ++m) order.forward(0);
    for (int m = 0; m < schedule.micro_batches; ++m) order.backward(0);
  }
  return schedule;
}

}  // namespace garonne::plan
