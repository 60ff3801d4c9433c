// The pipeline of a run on the devices of a cluster, as searches over grids estimate it.
#pragma once

#include "plan/grid/grid_estimate.hpp"
#include "plan/pipeline/simulation.hpp"
#include "train/plans/grid_search.hpp"

namespace garonne::train {

class SimulatedRun {
 public:
  // The grid of `wish.config`, but for its schedule, within `wish.budget_bytes`. `wish` outlives
  // it.
  explicit SimulatedRun(const GridSearchRequest& wish);

  // Seconds of the passes of each chunk, what runs again for the budget and collectives over tensor
  // ranks included, and of a message between stages. Throws ConfigError where the model cannot be
  // cut so, or the schedule has no Programs.
  plan::PipelineCosts costs_of(const plan::PipelineSchedule& schedule);
  // Of a whole step: with sums over data ranks and updates, and what a rank holds at most. Throws
  // as costs_of.
  plan::GridEstimate step(const plan::PipelineSchedule& schedule);

 private:
  plan::GridCandidate candidate_of(const plan::PipelineSchedule& schedule) const;

  const GridSearchRequest& wish_;
  plan::GridEstimator estimator_;
};

}  // namespace garonne::train
