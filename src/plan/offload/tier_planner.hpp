// The fastest Program of one stage that fits a budget where there are tiers below the device: what
// is not kept is made again or spends its idle time below, whichever is faster by replay.
#pragma once

#include <cstdint>
#include <map>

#include "base/device.hpp"
#include "plan/offload/offload_search.hpp"
#include "plan/stage/stage_planner.hpp"

namespace garonne::plan {

struct TierWish {
  StageWish stage;
  std::map<Tier, LowerTier> tiers;
  std::int64_t least_bytes = std::int64_t{1} << 20;  // smaller buffers stay on the device
};

// The best of what plan_stage() answers, and of plans of larger budgets up to keep-all's from which
// so much is moved below that they fit. The candidates of the latter are "<name> + offload". Throws
// as plan_stage() does where nothing fits.
StagePlan plan_stage_on_tiers(const ModelGraph& graph, const StepShape& step, const TierWish& wish);

}  // namespace garonne::plan
