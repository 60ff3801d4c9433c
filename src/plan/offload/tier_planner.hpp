// The fastest Program of one stage that fits a budget where there are tiers below the device: what
// is not kept is made again or spends its idle time below, whichever is faster by replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/device.hpp"
#include "plan/offload/offload_search.hpp"
#include "plan/stage/stage_planner.hpp"

namespace garonne::plan {

// Smaller buffers stay on the device: of their copies the latency is most.
inline constexpr std::int64_t least_moved_bytes = std::int64_t{1} << 20;

// The smallest budget of the device where there are tiers below it: what remains of the leanest
// plan by it when all that is idle is away.
struct TierFloor {
  std::int64_t bytes = 0;
  std::size_t entry = 0;  // of LeanPlans::entries
  std::size_t shape = 0;  // of communication_shapes()
};

// Of the plans in `lean`, which are those of `declared`. Looks at bytes only, so that it is the
// same before and after a profile. Where no node takes more than it declares, the plan of that
// entry fits `bytes`. Never above lean.bytes.
TierFloor find_tier_floor(const ModelGraph& declared, const StepShape& step, const LeanPlans& lean,
                          const std::map<Tier, LowerTier>& tiers,
                          std::int64_t least_bytes = least_moved_bytes);

struct TierWish {
  StageWish stage;
  std::map<Tier, LowerTier> tiers;
  std::int64_t least_bytes = least_moved_bytes;
  // That of stage.lean; null: by the graph as it is given.
  const TierFloor* floor = nullptr;
};

// The best of what plan_stage() answers, and of plans of larger budgets up to keep-all's, and of
// the floor's, from which so much is moved below that they fit. The candidates of the latter are
// "<name> + offload". Throws as plan_stage() does where nothing fits, with the floor as the
// smallest budget.
StagePlan plan_stage_on_tiers(const ModelGraph& graph, const StepShape& step, const TierWish& wish);

}  // namespace garonne::plan
