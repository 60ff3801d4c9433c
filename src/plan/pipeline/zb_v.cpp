// ZB-V (Qi et al. 2024, arXiv 2405.15362): two chunks placed in a V, so that the last part of the
// model is on the first device and every device holds as much. Below 2P−1 micro-batches it is the
// schedule of 2P−1 with the others taken out.
#include <algorithm>

#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {
namespace {

void order_device(DeviceOrder& order, int devices, int r, int micro_batches) {
  const auto both_halves = [&](int chunk) {
    order.backward_input(chunk);
    order.backward_weight(chunk);
  };
  const int above = devices - r;
  for (int i = 0; i < 2 * above - 1; ++i) order.forward(0);
  for (int i = 0; i < r; ++i) {
    order.forward(1);
    order.forward(0);
  }
  for (int i = 0; i < above; ++i) {
    order.forward(1);
    both_halves(1);
  }
  while (order.forwards(1) < micro_batches) {
    if (order.forwards(0) < micro_batches) order.forward(0);
    both_halves(0);
    order.forward(1);
    both_halves(1);
  }
  for (int i = 0; i < r; ++i) {
    order.backward_input(0);
    order.backward_input(1);
  }
  for (int i = 0; i < above; ++i) both_halves(0);
  for (const int chunk : {1, 0}) {
    while (order.weights_pending(chunk)) order.backward_weight(chunk);
  }
}

}  // namespace

PipelineSchedule make_zb_v(const PipelineRequest& request) {
  PipelineSchedule schedule = empty_schedule(request, "zb-v", 2, ChunkPlacement::V);
  const int devices = schedule.devices;
  const int micro_batches = std::max(schedule.micro_batches, 2 * devices - 1);
  for (int r = 0; r < devices; ++r) {
    DeviceOrder order(schedule.order[static_cast<std::size_t>(r)], 2);
    order_device(order, devices, r, micro_batches);
  }
  keep_first_micro_batches(schedule, schedule.micro_batches);
  return schedule;
}

}  // namespace garonne::plan
