// Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473): v chunks a device, which are passed
// by groups of G micro-batches in turn.
//
// With a shorter last group the published order is slow and, from three chunks on, can deadlock:
// the last device waits for a backward that the first device cannot have begun. A last group is
// therefore filled up and the micro-batches that do not exist are taken out again, which is never
// slower and never holds more. Where the only group is short the published order does no harm.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {

PipelineSchedule make_interleaved(const PipelineRequest& request) {
  PipelineSchedule schedule = empty_schedule_of_chunks(
      request, "interleaved", request.chunks.value_or(2), ChunkPlacement::Looped);
  const int devices = schedule.devices;
  const int chunks = schedule.chunks;
  const int wanted = schedule.micro_batches;
  const int group = request.group_size.value_or(devices);
  if (group < devices) {
    throw ConfigError("--group-size", fmt::format("{}", group),
                      fmt::format("a group passes all {0} stages before it comes back to the first "
                                  "one, so it has at least {0} micro-batches",
                                  devices));
  }
  const bool fill = wanted > group && wanted % group != 0;
  const int micro_batches = fill ? wanted + group - wanted % group : wanted;

  std::vector<std::pair<int, int>> table;  // chunk and micro-batch of the k-th forward
  for (int first = 0; first < micro_batches; first += group) {
    for (int c = 0; c < chunks; ++c) {
      for (int m = first; m < std::min(first + group, micro_batches); ++m) table.emplace_back(c, m);
    }
  }
  const int passes = micro_batches * chunks;
  for (int r = 0; r < devices; ++r) {
    auto& order = schedule.order[static_cast<std::size_t>(r)];
    const auto forward = [&](int k) {
      const auto [c, m] = table[static_cast<std::size_t>(k)];
      order.push_back({PipelineWork::Forward, c, m, false});
    };
    const auto backward = [&](int k) {
      const auto [c, m] = table[static_cast<std::size_t>(k)];
      order.push_back({PipelineWork::Backward, chunks - 1 - c, m, false});
    };
    const int warm_up = std::min(2 * (devices - 1 - r) + (chunks - 1) * group, passes);
    for (int k = 0; k < warm_up; ++k) forward(k);
    for (int k = warm_up; k < passes; ++k) {
      forward(k);
      backward(k - warm_up);
    }
    for (int k = passes - warm_up; k < passes; ++k) backward(k);
  }
  if (fill) keep_first_micro_batches(schedule, wanted);
  return schedule;
}

}  // namespace garonne::plan
