// The fastest Program of one stage that fits a budget where there are tiers below the device: what
// is not kept is made again or spends its idle time below, whichever is faster by replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/device.hpp"
#include "plan/offload/offload_search.hpp"
#include "plan/stage/stage_planner.hpp"

namespace garonne::plan {

// Smaller buffers stay on the device: of their copies the latency is most.
inline constexpr std::int64_t least_moved_bytes = std::int64_t{1} << 20;
// Those of an update are copied one after the other, once a step.
inline constexpr std::int64_t least_moved_state_bytes = std::int64_t{1} << 16;

// Where plans may move what, below the device.
struct LowerTiers {
  std::map<Tier, LowerTier> tiers;
  bool activations = true;  // values and records
  // Masters and states of the optimizer, to the host, to be updated there, or to the lowest tier.
  bool states = true;
  // To one of the tiers:
  bool gradients = true;  // between micro-batches, and until their update
  bool weights = true;    // what passes read of the parameters
  // Updates on the host may go on beside the next step, where that is faster.
  bool updates_beside_next_step = true;
  std::int64_t least_bytes = least_moved_bytes;              // of a value or record that moves
  std::int64_t least_state_bytes = least_moved_state_bytes;  // of what lasts, and of gradients

  bool empty() const {
    return tiers.empty() || (!activations && !states && !gradients && !weights);
  }
};

// The smallest budget of the device where there are tiers below it: what remains of the leanest
// plan by it when all that is idle is away.
struct TierFloor {
  std::int64_t bytes = 0;
  std::size_t entry = 0;  // of LeanPlans::entries
  std::size_t shape = 0;  // of communication_shapes()
  // In place of the entry's, of policies whose schedules are answers to a budget.
  std::optional<StepSchedule> schedule = {};
};

// Of the plans in `lean`, which are those of `declared`. Looks at bytes only, so that it is the
// same before and after a profile. Where no node takes more than it declares, the plan of that
// entry fits `bytes`. `forward`: a Program that the same rank runs with what lasts where the plan
// has it; null: none. Never above the larger of lean.bytes and what that needs.
TierFloor find_tier_floor(const ModelGraph& declared, const StepShape& step, const LeanPlans& lean,
                          const LowerTiers& below, const Program* forward);

struct TierRequest {
  StageRequest stage;
  LowerTiers below;
  // What needs stage.reserved_bytes, and less where the plan has some of what lasts below; null:
  // nothing.
  const Program* forward = nullptr;
  // That of stage.lean; null: by the graph as it is given.
  const TierFloor* floor = nullptr;
  // Of the device, what the step has only for plans that move something: the bound is of all plans.
  std::int64_t copy_bytes = 0;
  // Budgets between the smallest without tiers and keep-all's whose plans are tried: what is made
  // again and what is moved are mixed in so many ways.
  int mixtures = 7;
};

// The best of what plan_stage() answers, and of plans of larger budgets up to keep-all's, and of
// the floor's, from which so much is moved below that they fit. The candidates of the latter are
// called "<name> + offload", or after whichever of "states", "gradients" and "weights" move. Throws
// as plan_stage() does where nothing fits, with the floor as the smallest budget.
StagePlan plan_stage_on_tiers(const ModelGraph& graph, const StepShape& step,
                              const TierRequest& wish);

}  // namespace garonne::plan
