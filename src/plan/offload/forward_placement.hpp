// What a Program that changes nothing that lasts has of it on tiers below the device, so that it is
// within a budget.
#pragma once

#include <cstdint>
#include <map>

#include "base/device.hpp"
#include "plan/offload/tier_planner.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// The Program with the fewest of its masters, which it does not read, and then of its parameters,
// the largest first, below, from where they come for their uses (plan/offload/paging.hpp): each on
// the uppermost tier that has room, or the lowest, whose room is for the caller to check. All of
// them where even that is not within the budget of the device.
Program with_fewest_below(const Program& program, const std::map<Tier, LowerTier>& tiers,
                          std::int64_t budget_bytes);

}  // namespace garonne::plan
