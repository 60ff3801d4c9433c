#include "plan/grid/pipeline_hosts.hpp"

#include <algorithm>
#include <cstddef>

namespace garonne::plan {

void wait_for_host(const PassIssue& issue, double again, PhaseSeconds& chunk) {
  chunk.forward = std::max(chunk.forward, issue.forward);
  const double backward = chunk.backward_input + chunk.backward_weight;
  chunk.backward_input += std::max(0.0, again + issue.backward - backward);
}

void send_before_going_on(const PipelineSchedule& schedule, PipelineCosts& costs) {
  for (const PipelineRoute& route :
       pipeline_routes(schedule.placement, schedule.devices, schedule.chunks)) {
    for (std::size_t part = 0; part < route.size(); ++part) {
      PhaseSeconds& chunk = costs.chunks[static_cast<std::size_t>(
          route[part].device * schedule.chunks + route[part].chunk)];
      if (part + 1 < route.size()) chunk.forward += costs.hop_seconds;
      if (part > 0) chunk.backward_input += costs.hop_seconds;
    }
  }
  costs.hop_seconds = 0;
}

}  // namespace garonne::plan
