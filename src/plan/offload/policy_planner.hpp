// Plans by a policy of plan/offload/offload_policy.hpp: its schedules in every way in which ranks
// can communicate, with its placement, and the fastest of them by replay. Of solvers of chains the
// schedules are their answers to several shares of the budget, and the leanest.
#pragma once

#include "plan/offload/offload_policy.hpp"
#include "plan/offload/tier_planner.hpp"

namespace garonne::plan {

// As find_tier_floor(), with the policy's placement. `lean`: of OffloadPolicy::schedule. Throws
// ConfigError where there is no tier, or one has no room for what the policy has there: with how
// much that is; and for a solver of chains where the stage is none.
TierFloor find_policy_floor(const OffloadPolicy& policy, const ModelGraph& declared,
                            const StepShape& step, const LeanPlans& lean, const LowerTiers& below,
                            const Program* forward, TextCache* cache = nullptr);

// What plan_stage_on_tiers() answers where wish.stage.plan names the policy. Errors as above, and
// PlanError as there.
StagePlan plan_by_policy(const OffloadPolicy& policy, const ModelGraph& graph,
                         const StepShape& step, const TierRequest& wish);

}  // namespace garonne::plan
