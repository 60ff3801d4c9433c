// ZB-H1 (Qi et al. 2023, arXiv 2401.10241): 1F1B with the gradients of the weights put off, on
// device r by r micro-batches, which fill the bubble at the end at the memory of 1F1B's first
// device.
#include <algorithm>

#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {

PipelineSchedule make_zb_h1(const PipelineRequest& request) {
  PipelineSchedule schedule = empty_schedule(request, "zb-h1", 1, ChunkPlacement::Looped);
  const int micro_batches = schedule.micro_batches;
  for (int r = 0; r < schedule.devices; ++r) {
    DeviceOrder order(schedule.order[static_cast<std::size_t>(r)], 1);
    const int warm_up = std::min(schedule.devices - 1 - r, micro_batches);
    for (int i = 0; i < warm_up; ++i) order.forward(0);
    for (int i = 0; i < micro_batches - warm_up; ++i) {
      order.forward(0);
      order.backward_input(0);
      if (i >= r) order.backward_weight();
    }
    for (int i = 0; i < warm_up; ++i) {
      order.backward_input(0);
      order.backward_weight();
    }
    while (order.weights_pending()) order.backward_weight();
  }
  return schedule;
}

}  // namespace garonne::plan
