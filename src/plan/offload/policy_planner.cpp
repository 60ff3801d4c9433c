#include "plan/offload/policy_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/offload/mover.hpp"
#include "plan/offload/tier_selection.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

std::vector<MovedProgram> placed_within(const Program& program, const LowerTiers& below,
                                        std::int64_t bytes, const Program* forward,
                                        const OffloadPolicy& policy) {
  std::vector<MovedProgram> all = policy.place(Mover(program, below, bytes, forward));
  std::erase_if(all, [&](const MovedProgram& one) {
    return std::max(one.program.peak_bytes, one.reserved_bytes) > bytes;
  });
  return all;
}

// What the policy has on the lowest tier, of which there is too little.
[[noreturn]] void refuse_small_tier(const Program& program, LowerTiers below,
                                    const Program* forward, const OffloadPolicy& policy) {
  const auto [tier, given] = *below.tiers.rbegin();
  LowerTier roomy = given;
  roomy.budget_bytes = std::numeric_limits<std::int64_t>::max() / 4;
  below.tiers = {{tier, roomy}};
  const std::string key = tier == Tier::Host ? "memory.host_budget" : "memory.disk_budget";
  const std::vector<MovedProgram> all =
      placed_within(program, below, whole_bytes(program, forward), forward, policy);
  if (all.empty()) {
    throw ConfigError(
        "memory.plan", policy.name,
        "does not apply: updates of this optimizer need sums over parts of parameters "
        "on other ranks, which the host does not make");
  }
  std::int64_t needed = std::numeric_limits<std::int64_t>::max();
  for (const MovedProgram& one : all)
    needed = std::min(needed, replay(one.program).of(tier).peak_bytes);
  throw ConfigError(key, format_bytes(given.budget_bytes),
                    fmt::format("is less than the {} B ({}) that memory.plan = \"{}\" has there",
                                needed, format_bytes(needed), policy.name));
}

// All ways in which its schedules communicate.
void for_each_program(const ModelGraph& graph, const StepShape& step, const LeanPlans& lean,
                      const LowerTiers& below,
                      const std::function<void(const StagePlan&, const TierFloor& place)>& use) {
  const std::vector<CommunicationShape> shapes = communication_shapes(step);
  for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
    for (std::size_t entry = 0; entry < lean.entries.size(); ++entry) {
      StagePlan plan = lean_plan(graph, shapes[shape], lean.entries[entry]);
      set_tiers(below.tiers, plan.program);
      use(plan, {0, entry, shape});
    }
  }
}

TierFloor floor_of_policy(const ModelGraph& declared, const StepShape& step, const LeanPlans& lean,
                          const LowerTiers& below, const Program* forward,
                          const OffloadPolicy& policy) {
  if (below.tiers.empty())
    throw ConfigError("memory.plan", policy.name, "has no tier below the device to go to");
  TierFloor best{std::numeric_limits<std::int64_t>::max(), 0, 0};
  std::optional<Program> refused;
  for_each_program(declared, step, lean, below, [&](const StagePlan& plan, const TierFloor& place) {
    const Program& program = plan.program;
    const auto fits = [&](std::int64_t bytes) {
      return !placed_within(program, below, bytes, forward, policy).empty();
    };
    const std::int64_t at_least = Mover(program, below, 0, nullptr).least_bytes();
    if (at_least >= best.bytes) return;
    const std::int64_t enough = std::min(best.bytes, whole_bytes(program, forward));
    if (!fits(enough)) {
      refused = program;
      return;
    }
    best = place;
    best.bytes = least_that_fits(at_least, enough, fits);
  });
  if (best.bytes == std::numeric_limits<std::int64_t>::max())
    refuse_small_tier(*refused, below, forward, policy);
  return best;
}

}  // namespace

TierFloor find_policy_floor(const OffloadPolicy& policy, const ModelGraph& declared,
                            const StepShape& step, const LeanPlans& lean, const LowerTiers& below,
                            const Program* forward) {
  return floor_of_policy(declared, step, lean, used_by(policy, below), forward, policy);
}

StagePlan plan_by_policy(const OffloadPolicy& policy, const ModelGraph& graph,
                         const StepShape& step, const TierWish& given) {
  TierWish wish = given;
  wish.below = used_by(policy, given.below);
  std::optional<LeanPlans> own;
  if (given.stage.lean == nullptr)
    own = find_lean_plans(graph, step, policy.schedule, given.stage.cache);
  const LeanPlans& lean = own ? *own : *given.stage.lean;
  const auto floor_of = [&] {
    return floor_of_policy(graph, step, lean, wish.below, wish.forward, policy);
  };
  const TierFloor floor = given.floor == nullptr ? floor_of() : *given.floor;
  const std::int64_t budget = wish.stage.budget_bytes;
  expect_budget(floor.bytes, budget, policy.name);
  TierSelection selection(wish);
  const std::vector<CommunicationShape> shapes = communication_shapes(step);
  // What fits less fits, however the placement for more comes out.
  for (const std::int64_t bytes : {budget, floor.bytes}) {
    if (selection.found()) break;
    for_each_program(
        graph, step, lean, wish.below, [&](const StagePlan& plan, const TierFloor& place) {
          selection.add(policy.name + shapes[place.shape].text,
                        placed_within(plan.program, wish.below, bytes, wish.forward, policy));
        });
  }
  if (!selection.found()) {
    throw PlanError(std::max(floor_of().bytes, budget + 1), budget,
                    "operations were measured to take more scratch memory than they declare");
  }
  StagePlan plan = selection.take();
  plan.minimum_budget_bytes = floor.bytes;
  plan.least_seconds = least_seconds_of(graph, step, given);
  return plan;
}

}  // namespace garonne::plan
