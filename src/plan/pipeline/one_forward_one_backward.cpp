// 1F1B with a flush (PipeDream-flush, Narayanan et al. 2021, arXiv 2006.09503; Megatron-LM): as
// many forwards as there are devices after this one, then a forward and a backward in turn.
#include <algorithm>

#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {

PipelineSchedule make_one_forward_one_backward(const PipelineRequest& request) {
  PipelineSchedule schedule = empty_schedule(request, "1f1b", 1, ChunkPlacement::Looped);
  const int micro_batches = schedule.micro_batches;
  for (int r = 0; r < schedule.devices; ++r) {
    DeviceOrder order(schedule.order[static_cast<std::size_t>(r)], 1);
    const int warm_up = std::min(schedule.devices - 1 - r, micro_batches);
    for (int i = 0; i < warm_up; ++i) order.forward(0);
    for (int i = 0; i < micro_batches - warm_up; ++i) {
      order.forward(0);
      order.backward(0);
    }
    for (int i = 0; i < warm_up; ++i) order.backward(0);
  }
  return schedule;
}

}  // namespace garonne::plan
