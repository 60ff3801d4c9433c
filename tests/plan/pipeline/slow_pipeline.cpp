#include "plan/pipeline/slow_pipeline.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace garonne::plan::test {
namespace {

// Direction, part of the model, micro-batch.
using Pass = std::tuple<int, int, int>;

Pass pass_of(const PipelineSchedule& schedule, int device, const PipelineOperation& operation) {
  const int devices = schedule.devices;
  const int chunk = operation.chunk;
  switch (schedule.placement) {
    case ChunkPlacement::Looped:
      return {0, chunk * devices + device, operation.micro_batch};
    case ChunkPlacement::V:
      return {0, chunk == 0 ? device : 2 * devices - 1 - device, operation.micro_batch};
    default:
      return {chunk, chunk == 0 ? device : devices - 1 - device, operation.micro_batch};
  }
}

struct Ended {
  double time;
  int device;
};

}  // namespace

PipelineRequest request(int stages, int micro_batches) {
  PipelineRequest result;
  result.stages = stages;
  result.micro_batches = micro_batches;
  return result;
}

std::optional<std::vector<std::vector<double>>> slow_starts(const PipelineSchedule& schedule,
                                                            const PipelineCosts& costs) {
  const bool bidirectional = schedule.placement == ChunkPlacement::Bidirectional;
  const int parts = bidirectional ? schedule.devices : schedule.devices * schedule.chunks;
  std::map<Pass, Ended> forward, recompute, backward, weight;
  std::vector<std::vector<double>> starts(schedule.order.size());
  std::vector<double> free(schedule.order.size(), 0);
  std::map<int, int> direction;
  bool progress = true;
  while (progress) {
    progress = false;
    for (std::size_t r = 0; r < schedule.order.size(); ++r) {
      if (starts[r].size() == schedule.order[r].size()) continue;
      const PipelineOperation& next = schedule.order[r][starts[r].size()];
      const int device = static_cast<int>(r);
      const Pass pass = pass_of(schedule, device, next);
      const auto [way, part, m] = pass;
      const PhaseSeconds& phases = costs.chunks[r * static_cast<std::size_t>(schedule.chunks) +
                                                static_cast<std::size_t>(next.chunk)];
      double start = free[r];
      const auto wait_for = [&](const std::map<Pass, Ended>& ends, const Pass& other) {
        const auto found = ends.find(other);
        if (found == ends.end()) return false;
        const bool hop = found->second.device != device;
        start = std::max(start, found->second.time + (hop ? costs.hop_seconds : 0));
        return true;
      };
      double seconds = 0;
      std::map<Pass, Ended>* done = nullptr;
      switch (next.work) {
        case PipelineWork::Forward:
          if (part > 0 && !wait_for(forward, {way, part - 1, m})) continue;
          if (direction.emplace(m, way).first->second != way) return std::nullopt;
          seconds = phases.forward;
          done = &forward;
          break;
        case PipelineWork::Recompute:
          if (!schedule.recomputes({device, next.chunk}) || backward.count(pass))
            return std::nullopt;
          if (!wait_for(forward, pass)) return std::nullopt;
          seconds = phases.forward;
          done = &recompute;
          break;
        case PipelineWork::BackwardWeight:
          if (!wait_for(backward, pass)) return std::nullopt;
          seconds = phases.backward_weight;
          done = &weight;
          break;
        default:
          if (schedule.recomputes({device, next.chunk}) && !recompute.count(pass))
            return std::nullopt;
          if (!forward.count(pass)) return std::nullopt;
          if (part + 1 < parts && !wait_for(backward, {way, part + 1, m})) continue;
          seconds = phases.backward_input;
          done = &backward;
          break;
      }
      if (next.work == PipelineWork::Backward) {
        seconds += phases.backward_weight;
        if (!weight.emplace(pass, Ended{start + seconds, device}).second) return std::nullopt;
      }
      if (!done->emplace(pass, Ended{start + seconds, device}).second) return std::nullopt;
      starts[r].push_back(start);
      free[r] = start + seconds;
      progress = true;
    }
  }
  for (std::size_t r = 0; r < starts.size(); ++r) {
    if (starts[r].size() != schedule.order[r].size()) return std::nullopt;
  }
  const auto all =
      static_cast<std::size_t>(parts) * static_cast<std::size_t>(schedule.micro_batches);
  if (forward.size() != all || backward.size() != all || weight.size() != all) return std::nullopt;
  return starts;
}

std::vector<double> slow_peaks(const PipelineSchedule& schedule, const PipelineOutcome& outcome) {
  std::vector<double> peaks;
  for (int device = 0; device < schedule.devices; ++device) {
    const auto& lane = outcome.timeline[static_cast<std::size_t>(device)];
    std::map<std::pair<int, int>, std::pair<double, double>> held;
    for (const TimedOperation& timed : lane) {
      const PipelineOperation& operation = timed.operation;
      auto& interval = held[{operation.chunk, operation.micro_batch}];
      const PipelineWork first = schedule.recomputes({device, operation.chunk})
                                     ? PipelineWork::Recompute
                                     : PipelineWork::Forward;
      if (operation.work == first) interval.first = timed.start;
      if (operation.work == PipelineWork::Backward ||
          operation.work == PipelineWork::BackwardWeight)
        interval.second = timed.end;
    }
    int most = 0;
    for (const TimedOperation& moment : lane) {
      const auto live = [&moment](const auto& entry) {
        return entry.second.first <= moment.start && moment.start < entry.second.second;
      };
      most = std::max(most, static_cast<int>(std::count_if(held.begin(), held.end(), live)));
    }
    const bool bidirectional = schedule.placement == ChunkPlacement::Bidirectional;
    peaks.push_back(most / static_cast<double>(bidirectional ? 1 : schedule.chunks));
  }
  return peaks;
}

PhaseSeconds random_phases(std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(0.2, 2.0);
  return {seconds(random), seconds(random), seconds(random)};
}

}  // namespace garonne::plan::test
