// Times and activations of a pipeline schedule.
#pragma once

#include <optional>
#include <vector>

#include "plan/pipeline/schedule.hpp"

namespace garonne::plan {

// Of one micro-batch.
struct PhaseSeconds {
  double forward = 0;  // and recompute
  double backward_input = 0;
  double backward_weight = 0;

  double sum() const { return forward + backward_input + backward_weight; }
};

struct PipelineCosts {
  // Of each chunk: chunk c of device r at r·v + c. A whole backward takes the sum of its halves.
  std::vector<PhaseSeconds> chunks;
  // From the end of an operation to where another device can use what it made; occupies neither.
  double hop_seconds = 0;
  // What operations that overlap save of the sum of their times, from 0 to below 1: they start and
  // end together. Without it they run one after the other, each as soon as it can.
  std::optional<double> overlap_gain;
};

// Every device has the same work `device`, its chunks equal shares of it.
PipelineCosts even_costs(const PipelineSchedule& schedule, const PhaseSeconds& device);

struct TimedOperation {
  PipelineOperation operation;
  double start = 0;  // seconds
  double end = 0;
};

struct PipelineOutcome {
  double makespan = 0;  // seconds until the last device has ended
  // makespan − the work of the busiest device, where running a forward again is no work; with even
  // costs makespan − M(f+b+w).
  double bubble = 0;
  std::vector<double> spans;  // by device, from its first start to its last end
  // By device, the most held at once, in activations of one micro-batch in all chunks of a device
  // (one chunk for bidirectional). Held from the start of the forward (of the recompute, where
  // there is one) to the end of the backward, where split of its weight half.
  std::vector<double> peak_activations;
  // By device, the most chunk inputs held at once, from the start of the forward to the end of the
  // backward. Empty unless some chunk recomputes.
  std::vector<int> peak_inputs;
  std::vector<std::vector<TimedOperation>> timeline;  // by device, in order
};

// Runs every device greedily in its order: an operation starts when the one before has ended and
// what it needs has arrived; there is no barrier. Throws InternalError for a schedule that
// find_fault rejects by its deadlock, or for costs of another number of chunks.
PipelineOutcome simulate_pipeline(const PipelineSchedule& schedule, const PipelineCosts& costs);

}  // namespace garonne::plan
