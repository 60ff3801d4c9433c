// DualPipeV (DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe; the "cut in half" of DualPipe by Qi
// et al.): two chunks placed in a V; in the steady state a forward of one chunk is paired with a
// full backward of the other, which a device with overlapping kernels runs at the same time. Below
// 2P micro-batches it is the schedule of 2P with the others taken out.
#include <algorithm>

#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {
namespace {

// The eight phases of the source.
void order_device(DeviceOrder& order, int devices, int r, int micro_batches) {
  const int above = devices - r - 1;
  const int below = r + 1;
  for (int i = 0; i < 2 * above; ++i) order.forward(0);
  for (int i = 0; i < below; ++i) {
    order.forward(0);
    order.forward(1);
  }
  for (int i = 0; i < above; ++i) {
    order.backward_input(1);
    order.backward_weight();
    order.forward(1);
  }
  for (int i = 0; i < micro_batches - 2 * devices + below; ++i) {
    if (i == 0 && above == 0) {
      // Here the backward is of the micro-batch whose forward has just ended.
      order.forward(0);
      order.backward(1);
    } else {
      order.overlapped(0, 1);
    }
    order.overlapped(1, 0);
  }
  for (int i = 0; i < above; ++i) {
    order.backward(1);
    order.overlapped(1, 0);
  }
  for (int i = 0; i < 2 * below; ++i) {
    const int chunk = i % 2 == 0 ? 1 : 0;
    if (i < below) {
      order.backward(chunk);
    } else {
      order.backward_input(chunk);
    }
  }
  for (int i = 0; i < above; ++i) {
    order.backward_weight();
    order.backward_input(0);
  }
  for (int i = 0; i < below; ++i) order.backward_weight();
}

}  // namespace

PipelineSchedule make_dualpipev(const PipelineRequest& request) {
  PipelineSchedule schedule = empty_schedule(request, "dualpipev", 2, ChunkPlacement::V);
  const int devices = schedule.devices;
  const int micro_batches = std::max(schedule.micro_batches, 2 * devices);
  for (int r = 0; r < devices; ++r) {
    DeviceOrder order(schedule.order[static_cast<std::size_t>(r)], 2);
    order_device(order, devices, r, micro_batches);
  }
  keep_first_micro_batches(schedule, schedule.micro_batches);
  return schedule;
}

}  // namespace garonne::plan
