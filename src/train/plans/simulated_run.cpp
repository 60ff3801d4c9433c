#include "train/plans/simulated_run.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "train/plans/candidate_planner.hpp"

namespace garonne::train {

SimulatedRun::SimulatedRun(const GridSearchRequest& wish)
    : wish_(wish),
      estimator_(wish.cluster, wish.budget_bytes, setup_of_model(wish, 1, false, 1).step,
                 blocks_of(wish)) {}

plan::PipelineCosts SimulatedRun::costs_of(const plan::PipelineSchedule& schedule) {
  return estimator_.pipeline_costs(candidate_of(schedule));
}

plan::GridEstimate SimulatedRun::step(const plan::PipelineSchedule& schedule) {
  return estimator_.estimate(candidate_of(schedule));
}

plan::GridCandidate SimulatedRun::candidate_of(const plan::PipelineSchedule& schedule) const {
  const auto& known = plan::schedule_traits();
  if (std::ranges::find(known, schedule.name, &plan::ScheduleTraits::name) == known.end()) {
    throw ConfigError("--schedule", schedule.name,
                      "is none that runs are planned with; leave out the run file and give seconds");
  }
  const RunConfig& config = wish_.config;
  plan::GridCandidate candidate;
  candidate.shape = {static_cast<int>(config.grid.data), schedule.devices,
                     static_cast<int>(config.grid.tensor)};
  candidate.sequence_parallel = config.grid.sequence_parallel;
  candidate.schedule = schedule.name;
  candidate.chunks = schedule.chunks_passed();
  candidate.zero = config.grid.data > 1 ? static_cast<int>(config.grid.zero) : 0;
  candidate.micro_batch = config.train.micro_batch;
  candidate.micro_batches = schedule.micro_batches;
  candidate.bucket_bytes = config.grid.bucket;
  return candidate;
}

}  // namespace garonne::train
