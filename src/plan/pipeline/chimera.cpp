// Chimera (Li and Hoefler 2021, arXiv 2107.06925) with two directions, units of P micro-batches one
// behind the other: half of a unit goes down the devices, half up.
//
// In equal slots the forward of micro-batch m of a direction in part s of the model is in slot 2m+s
// of its unit, the backward in 2m+2P−1−s, and units are 2P slots apart. The two directions never
// meet in a slot because P is even: on a device the slots of one are even where those of the other
// are odd. A last unit that is not full leaves its slots empty.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {

int micro_batches_down(int devices, int micro_batches) {
  const int units = micro_batches / devices;
  return units * devices / 2 + (micro_batches % devices + 1) / 2;
}

PipelineSchedule make_chimera(const PipelineRequest& request) {
  PipelineSchedule schedule = empty_schedule(request, "chimera", 2, ChunkPlacement::Bidirectional);
  const int devices = schedule.devices;
  if (devices % 2 != 0) {
    throw ConfigError("--stages", fmt::format("{}", devices),
                      fmt::format("chimera needs an even number of stages; {}",
                                  devices == 1 ? std::string("the smallest is 2")
                                               : fmt::format("the nearest are {} and {}",
                                                             devices - 1, devices + 1)));
  }
  for (int r = 0; r < devices; ++r) {
    std::vector<std::pair<int, PipelineOperation>> slots;
    for (int unit = 0; unit < schedule.micro_batches; unit += devices) {
      const int members = std::min(devices, schedule.micro_batches - unit);
      const int downward = micro_batches_down(devices, members);
      for (int k = 0; k < members; ++k) {
        const bool down = k < downward;
        const int chunk = down ? 0 : 1;
        const int part = down ? r : devices - 1 - r;
        const int start = 2 * unit + 2 * (down ? k : k - downward);
        slots.push_back({start + part, {PipelineWork::Forward, chunk, unit + k, false}});
        slots.push_back(
            {start + 2 * devices - 1 - part, {PipelineWork::Backward, chunk, unit + k, false}});
      }
    }
    std::sort(slots.begin(), slots.end());
    for (const auto& slot : slots) {
      schedule.order[static_cast<std::size_t>(r)].push_back(slot.second);
    }
  }
  return schedule;
}

}  // namespace garonne::plan
