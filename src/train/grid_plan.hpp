// The Programs of all stages of a grid, planned on one machine and replayed together.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/session.hpp"
#include "plan/cluster.hpp"
#include "train/planning.hpp"

namespace garonne::train {

struct StagePlan {
  Setup setup;
  Choice choice;
  plan::Prediction prediction;  // seconds: until this stage is done, among the others
};

struct GridPlan {
  std::vector<StagePlan> stages;
  double seconds = 0;         // of a step
  double bubble_seconds = 0;  // of it, the slowest stage computes nothing
  // The stage with the highest peak, and the least budget that works for all.
  std::size_t largest = 0;
  std::int64_t minimum_budget_bytes = 0;
};

// `budget_bytes` for each rank. Costs are applied to `whole` before; the links of its groups are
// the cluster's, or those of `whole` where there is none. Throws PlanError with the smallest budget
// that works, the largest over the stages; ConfigError as setup_of_stage does.
GridPlan plan_grid(const Setup& whole, std::int64_t budget_bytes,
                   const plan::Cluster* cluster = nullptr);

// Seconds of a step in which every rank runs its `program`: in a pipeline the stages are replayed
// together, which throws ReplayError where what they send does not meet, or over NCCL could not
// pass in the lanes of the transport. `setup` is that of the rank's stage. Collective.
double seconds_of_step(const Setup& setup, const plan::Program& program, dist::Session& session);

}  // namespace garonne::train
