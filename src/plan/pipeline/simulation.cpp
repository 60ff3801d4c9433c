#include "plan/pipeline/simulation.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

constexpr double unknown = -1;

// The only event that matters to others is the end of an operation: it wakes the device that waits
// for its result. A device runs on until it has to wait.
class PipelineRun {
 public:
  PipelineRun(const PipelineSchedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule), costs_(costs), neighbours_(schedule) {
    const std::size_t passes = costs.chunks.size() * as_index(schedule.micro_batches);
    forward_end_.assign(passes, unknown);
    backward_end_.assign(passes, unknown);
    free_at_.assign(as_index(schedule.devices), 0);
    timeline_.resize(as_index(schedule.devices));
  }

  std::vector<std::vector<TimedOperation>> run() {
    std::vector<int> awake;
    for (int device = schedule_.devices; device-- > 0;) awake.push_back(device);
    while (!awake.empty()) {
      const int device = awake.back();
      awake.pop_back();
      while (start_next(device, awake)) {
      }
    }
    for (std::size_t r = 0; r < timeline_.size(); ++r) {
      expect(timeline_[r].size() == schedule_.order[r].size(), "a pipeline schedule deadlocks");
    }
    return std::move(timeline_);
  }

 private:
  std::size_t pass(ChunkPlace place, int micro_batch) const {
    return neighbours_.index(place) * as_index(schedule_.micro_batches) + as_index(micro_batch);
  }

  double seconds(int device, const PipelineOperation& operation) const {
    const PhaseSeconds& chunk = costs_.chunks[neighbours_.index({device, operation.chunk})];
    switch (operation.work) {
      case PipelineWork::Forward:
      case PipelineWork::Recompute:
        return chunk.forward;
      case PipelineWork::Backward:
        return chunk.backward_input + chunk.backward_weight;
      case PipelineWork::BackwardInput:
        return chunk.backward_input;
      case PipelineWork::BackwardWeight:
        return chunk.backward_weight;
    }
    throw InternalError("no such pipeline work");
  }

  // When what it needs from another chunk is there; unknown as long as that has not run.
  double arrival(int device, const PipelineOperation& operation) const {
    const ChunkPlace* source = neighbours_.source(device, operation);
    if (source == nullptr) return 0;
    const auto& ends = operation.work == PipelineWork::Forward ? forward_end_ : backward_end_;
    const double end = ends[pass(*source, operation.micro_batch)];
    if (end == unknown) return unknown;
    return end + (source->device == device ? 0 : costs_.hop_seconds);
  }

  bool start_next(int device, std::vector<int>& awake) {
    const auto& order = schedule_.order[as_index(device)];
    const std::size_t next = timeline_[as_index(device)].size();
    if (next == order.size()) return false;
    const double first_arrival = arrival(device, order[next]);
    if (first_arrival == unknown) return false;
    double start = std::max(free_at_[as_index(device)], first_arrival);
    if (!order[next].overlaps_next || !costs_.overlap_gain) {
      finish(device, order[next], start, start + seconds(device, order[next]), awake);
      return true;
    }
    const double second_arrival = arrival(device, order[next + 1]);
    if (second_arrival == unknown) return false;
    start = std::max(start, second_arrival);
    const double both = seconds(device, order[next]) + seconds(device, order[next + 1]);
    const double end = start + (1 - *costs_.overlap_gain) * both;
    finish(device, order[next], start, end, awake);
    finish(device, order[next + 1], start, end, awake);
    return true;
  }

  void finish(int device, const PipelineOperation& operation, double start, double end,
              std::vector<int>& awake) {
    timeline_[as_index(device)].push_back({operation, start, end});
    free_at_[as_index(device)] = end;
    const ChunkPlace place{device, operation.chunk};
    const ChunkPlace* receiver = nullptr;
    if (operation.work == PipelineWork::Forward) {
      forward_end_[pass(place, operation.micro_batch)] = end;
      receiver = neighbours_.after(place);
    } else if (gives_input_gradient(operation.work)) {
      backward_end_[pass(place, operation.micro_batch)] = end;
      receiver = neighbours_.before(place);
    }
    if (receiver != nullptr && receiver->device != device) awake.push_back(receiver->device);
  }

  const PipelineSchedule& schedule_;
  const PipelineCosts& costs_;
  PipelineNeighbours neighbours_;
  std::vector<double> forward_end_;  // by chunk of a device and micro-batch
  std::vector<double> backward_end_;
  std::vector<double> free_at_;  // by device
  std::vector<std::vector<TimedOperation>> timeline_;
};

// Most chunk activations and most chunk inputs at once. What one device holds depends on its order
// only, except that operations which run together are both begun before either has ended.
struct HeldBytes {
  int activations = 0;
  int inputs = 0;
};
HeldBytes most_held(const PipelineSchedule& schedule, int device, bool together) {
  std::vector<bool> recomputes;
  for (int c = 0; c < schedule.chunks; ++c) recomputes.push_back(schedule.recomputes({device, c}));
  const auto& order = schedule.order[as_index(device)];
  HeldBytes now;
  HeldBytes most;
  for (std::size_t i = 0; i < order.size();) {
    const std::size_t end = i + (together && order[i].overlaps_next ? 2 : 1);
    for (std::size_t k = i; k < end; ++k) {
      const bool forward = order[k].work == PipelineWork::Forward;
      const bool begins =
          recomputes[as_index(order[k].chunk)] ? order[k].work == PipelineWork::Recompute : forward;
      now.activations += begins ? 1 : 0;
      now.inputs += forward ? 1 : 0;
    }
    most = {std::max(most.activations, now.activations), std::max(most.inputs, now.inputs)};
    for (; i < end; ++i) {
      if (!ends_activations(order[i].work)) continue;
      --now.activations;
      --now.inputs;
    }
  }
  return most;
}

double work_seconds(const PipelineSchedule& schedule, const PipelineCosts& costs, int device) {
  std::vector<int> passes(as_index(schedule.chunks), 0);
  for (const PipelineOperation& operation : schedule.order[as_index(device)]) {
    if (operation.work == PipelineWork::Forward) ++passes[as_index(operation.chunk)];
  }
  double sum = 0;
  for (std::size_t c = 0; c < passes.size(); ++c) {
    sum += passes[c] * costs.chunks[as_index(device) * as_index(schedule.chunks) + c].sum();
  }
  return sum;
}

}  // namespace

PipelineCosts even_costs(const PipelineSchedule& schedule, const PhaseSeconds& device) {
  const double parts = schedule.chunks_passed();
  PipelineCosts costs;
  costs.chunks.assign(
      as_index(schedule.devices) * as_index(schedule.chunks),
      {device.forward / parts, device.backward_input / parts, device.backward_weight / parts});
  return costs;
}

PipelineOutcome simulate_pipeline(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  expect(costs.chunks.size() == as_index(schedule.devices) * as_index(schedule.chunks),
         "there are costs for every chunk");
  PipelineOutcome outcome;
  outcome.timeline = PipelineRun(schedule, costs).run();
  double busiest = 0;
  for (int device = 0; device < schedule.devices; ++device) {
    const auto& lane = outcome.timeline[as_index(device)];
    outcome.makespan = std::max(outcome.makespan, lane.back().end);
    outcome.spans.push_back(lane.back().end - lane.front().start);
    busiest = std::max(busiest, work_seconds(schedule, costs, device));
    const HeldBytes held = most_held(schedule, device, costs.overlap_gain.has_value());
    outcome.peak_activations.push_back(held.activations /
                                       static_cast<double>(schedule.chunks_passed()));
    if (!schedule.recomputed.empty()) outcome.peak_inputs.push_back(held.inputs);
  }
  outcome.bubble = outcome.makespan - busiest;
  // What rounding leaves of two equal numbers.
  if (std::abs(outcome.bubble) < 1e-12 * outcome.makespan) outcome.bubble = 0;
  return outcome;
}

}  // namespace garonne::plan
