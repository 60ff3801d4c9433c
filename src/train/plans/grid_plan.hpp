// The Programs of all stages of a grid, planned on one machine and replayed together.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dist/session.hpp"
#include "plan/model/cluster.hpp"
#include "train/plans/smallest_budget.hpp"
#include "train/plans/step_parts.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// What is said where a pipeline is not cut by its seconds.
constexpr const char* cut_as_declared_note =
    "note: stages of equal seconds do not fit the budget; the model is cut by declared "
    "operations\n";

struct PlannedStage {
  Setup setup;
  Choice choice;
  plan::Prediction prediction;  // seconds: until this stage is done, among the others
};

struct GridPlan {
  std::vector<PlannedStage> stages;
  double seconds = 0;  // of a step
  StepParts parts;     // of it
  // Of the stage that is done last: what its host takes to issue all instructions, and for how much
  // of the step its device waits for that.
  double issue_seconds = 0;
  double launch_seconds = 0;
  // The stage with the highest peak, and the least budget that works for all.
  std::size_t largest = 0;
  std::int64_t minimum_budget_bytes = 0;
  // Without tiers below the device; 0 where there are none.
  std::int64_t minimum_on_device_bytes = 0;
  // With one way alone in which these tiers are used, and with all others; none where there is one.
  std::map<std::string, std::int64_t> minimum_bytes_by_way;
  std::map<std::string, std::int64_t> minimum_bytes_without_way;
  // Not all stages fit as their seconds would cut the model: it is cut as declared.
  bool cut_as_declared = false;
};

// `budget_bytes` for each rank. Costs are applied to `whole` before; the links of its groups are
// the cluster's, or those of `whole` where there is none. Without Effort::All the minimums
// by way are left out, and where everything can be kept the others. Throws PlanError with the
// smallest budget (train/plans/smallest_budget.hpp) where less was given; ConfigError as
// setup_of_stage does.
GridPlan plan_grid(const Setup& whole, std::int64_t budget_bytes,
                   const plan::Cluster* cluster = nullptr, Effort effort = Effort::All);

// Replays the Programs of all ranks of a grid together, where they are few enough to be looked at
// one by one; false, and nothing done, where they are not. Throws ReplayError.
bool replay_ranks(const Grid& grid, const std::function<plan::Program(int rank)>& program_of);

// Whether the rank is the one that plans for all ranks of its stage.
bool plans_for_its_stage(const Grid& grid, int rank);

// `floor` of choose_together(): of the stage on the rank that plans for it, empty on others.
// Throws on all ranks PlanError, of the whole budget with `kept_bytes` of libraries, where that is
// too small. Collective.
StageFloor floor_of_rank(const Setup& whole, int stage, std::int64_t budget_bytes,
                         std::int64_t kept_bytes, dist::Session& session);

// Plans this rank's stage of `whole` with memory.plan of the configuration: as seconds cut the
// model where all stages fit so, else as declared. One rank of each stage solves and sends the
// Program to the others; where everything can be kept, all make it for themselves. `floor` was
// found before and matters on the ranks that solve only. `setup` becomes that of the stage. Throws
// on all ranks ConfigError as setup_of_stage does, and InternalError where a rank of the stage has
// another model, or its own Program would be another. Collective.
Choice choose_together(const Setup& whole, int stage, const StageFloor& floor,
                       std::int64_t budget_bytes, Setup& setup, dist::Session& session);

// Seconds of a step in which every rank runs its `program`: in a pipeline the stages are replayed
// together, which throws ReplayError where what they send does not meet, or over NCCL could not
// pass in the lanes of the transport. `setup` is that of the rank's stage. Collective.
double seconds_of_step(const Setup& setup, const plan::Program& program, dist::Session& session);

}  // namespace garonne::train
