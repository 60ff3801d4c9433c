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
#include "plan/chain/chain_solver.hpp"
#include "plan/offload/chain_offload.hpp"
#include "plan/offload/mover.hpp"
#include "plan/offload/tier_selection.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/chain_budgets.hpp"

namespace garonne::plan {
namespace {

using Place = std::function<std::vector<MovedProgram>(const Program&, const Mover&)>;

// A schedule, and what the policy has below of a Program of it.
struct Start {
  LeanPlans::Entry entry;
  Place place;
};

std::vector<MovedProgram> placed_within(const Program& program, const LowerTiers& below,
                                        std::int64_t bytes, const Program* forward,
                                        const Place& place) {
  std::vector<MovedProgram> all = place(program, Mover(program, below, bytes, forward));
  std::erase_if(all, [&](const MovedProgram& one) {
    return std::max(one.program.peak_bytes, one.reserved_bytes) > bytes;
  });
  return all;
}

// None where they stay. What passes gather is none of a chain's.
std::optional<std::int64_t> least_moved_weight_bytes(const LowerTiers& below,
                                                     const StepShape& step) {
  return below.weights && step.zero < 3 ? std::optional(below.least_state_bytes) : std::nullopt;
}

std::vector<Start> starts_of(const OffloadPolicy& policy, const LeanPlans& lean) {
  std::vector<Start> starts;
  for (const LeanPlans::Entry& entry : lean.entries) {
    starts.push_back(
        {entry, [&policy](const Program&, const Mover& mover) { return policy.place(mover); }});
  }
  return starts;
}

// Of a solver of chains.
Start leanest_start(StepSchedule schedule, const LowerTiers& below, const StepShape& step) {
  const std::optional<std::int64_t> least_weight_bytes = least_moved_weight_bytes(below, step);
  return {{&stage_solvers().front(), std::move(schedule)},
          [least_weight_bytes](const Program& program, const Mover& mover) {
            return mover.with_idle_below(idle_times_at_turns(program),
                                         least_weight_bytes
                                             ? movable_weights(program, *least_weight_bytes)
                                             : std::vector<int>());
          }};
}

// From bytes alone, as find_lean_plans() has it.
StepSchedule leanest_of_solver(const OffloadPolicy& policy, const ModelGraph& graph, StepShape step,
                               TextCache* cache) {
  step.links = StepLinks();
  step.kernels = KernelSeconds();
  const ModelGraph timeless = with_equal_seconds(graph);
  return CopyingStepPlanner(chain_solver(policy.chain_solver), timeless, step, cache).leanest();
}

// What the policy has on the lowest tier, of which there is too little.
[[noreturn]] void refuse_small_tier(const Program& program, LowerTiers below,
                                    const Program* forward, const OffloadPolicy& policy,
                                    const Place& place) {
  const auto [tier, given] = *below.tiers.rbegin();
  LowerTier roomy = given;
  roomy.budget_bytes = std::numeric_limits<std::int64_t>::max() / 4;
  below.tiers = {{tier, roomy}};
  const std::string key = tier == Tier::Host ? "memory.host_budget" : "memory.disk_budget";
  const std::vector<MovedProgram> all =
      placed_within(program, below, whole_bytes(program, forward), forward, place);
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
void for_each_program(
    const ModelGraph& graph, const StepShape& step, const std::vector<Start>& starts,
    const LowerTiers& below,
    const std::function<void(const StagePlan&, const Start&, const TierFloor& which)>& use) {
  const std::vector<CommunicationShape> shapes = communication_shapes(step);
  for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
    for (std::size_t entry = 0; entry < starts.size(); ++entry) {
      StagePlan plan = lean_plan(graph, shapes[shape], starts[entry].entry);
      set_tiers(below.tiers, plan.program);
      use(plan, starts[entry], {0, entry, shape});
    }
  }
}

TierFloor floor_of_policy(const ModelGraph& declared, const StepShape& step,
                          const std::vector<Start>& starts, const LowerTiers& below,
                          const Program* forward, const OffloadPolicy& policy) {
  TierFloor best{std::numeric_limits<std::int64_t>::max(), 0, 0};
  std::optional<std::pair<Program, Place>> refused;
  for_each_program(declared, step, starts, below,
                   [&](const StagePlan& plan, const Start& start, const TierFloor& which) {
                     const Program& program = plan.program;
                     const auto fits = [&](std::int64_t bytes) {
                       return !placed_within(program, below, bytes, forward, start.place).empty();
                     };
                     const std::int64_t at_least = Mover(program, below, 0, nullptr).least_bytes();
                     if (at_least >= best.bytes) return;
                     const std::int64_t enough =
                         std::min(best.bytes, whole_bytes(program, forward));
                     if (!fits(enough)) {
                       refused = {program, start.place};
                       return;
                     }
                     best = which;
                     best.bytes = least_that_fits(at_least, enough, fits);
                   });
  if (best.bytes == std::numeric_limits<std::int64_t>::max())
    refuse_small_tier(refused->first, below, forward, policy, refused->second);
  return best;
}

void expect_tier(const OffloadPolicy& policy, const LowerTiers& below) {
  if (!below.tiers.empty()) return;
  throw ConfigError("memory.plan", policy.name,
                    "has no tier below the device to go to: set memory.disk, or, for a device with "
                    "memory of its own, memory.host_budget");
}

// How much of the budget one micro-batch may have is searched for: several may be under way, and
// chains count other bytes than Programs do.
constexpr double nearest_shares = 1.0 / 64;

void add_answers(const OffloadPolicy& policy, const ModelGraph& graph, const StepShape& step,
                 const TierRequest& wish, TierSelection& selection) {
  const CopyingStepPlanner planner(chain_solver(policy.chain_solver), graph, step, wish.stage.cache,
                                   least_moved_weight_bytes(wish.below, step));
  const std::vector<CommunicationShape> shapes = communication_shapes(step);
  const std::int64_t budget = wish.stage.budget_bytes;
  double fits = 0;
  double too_much = largest_chain_budget;
  double share = 1;
  while (too_much - fits > nearest_shares) {
    const auto answer = planner.within(budget, share, wish.below.tiers.begin()->second.links);
    bool placed = false;
    if (answer) {
      const Start start{{&stage_solvers().front(), answer->schedule},
                        [&](const Program& program, const Mover& mover) {
                          return mover.with_idle_below(
                              idle_times_below(program, graph, *answer),
                              weights_below(program, *answer, wish.below.least_state_bytes));
                        }};
      for_each_program(graph, step, {start}, wish.below,
                       [&](const StagePlan& plan, const Start& of, const TierFloor& which) {
                         auto all = placed_within(plan.program, wish.below, budget, wish.forward,
                                                  of.place);
                         placed = placed || !all.empty();
                         selection.add(policy.name + shapes[which.shape].text, std::move(all));
                       });
    }
    (!answer || placed ? fits : too_much) = share;
    share = (fits + too_much) / 2;
  }
}

}  // namespace

TierFloor find_policy_floor(const OffloadPolicy& policy, const ModelGraph& declared,
                            const StepShape& step, const LeanPlans& lean, const LowerTiers& given,
                            const Program* forward, TextCache* cache) {
  const LowerTiers below = used_by(policy, given);
  expect_tier(policy, below);
  if (policy.chain_solver.empty())
    return floor_of_policy(declared, step, starts_of(policy, lean), below, forward, policy);
  const StepSchedule schedule = leanest_of_solver(policy, declared, step, cache);
  TierFloor floor = floor_of_policy(declared, step, {leanest_start(schedule, below, step)}, below,
                                    forward, policy);
  floor.schedule = schedule;
  return floor;
}

StagePlan plan_by_policy(const OffloadPolicy& policy, const ModelGraph& graph,
                         const StepShape& step, const TierRequest& given) {
  TierRequest wish = given;
  wish.below = used_by(policy, given.below);
  expect_tier(policy, wish.below);
  std::optional<LeanPlans> own;
  if (given.stage.lean == nullptr)
    own = find_lean_plans(graph, step, policy.schedule, given.stage.cache);
  const LeanPlans& lean = own ? *own : *given.stage.lean;
  const auto floor_of = [&] {
    return find_policy_floor(policy, graph, step, lean, given.below, wish.forward,
                             given.stage.cache);
  };
  const TierFloor floor = given.floor == nullptr ? floor_of() : *given.floor;
  const std::int64_t budget = wish.stage.budget_bytes;
  expect_budget(floor.bytes, budget, policy.name);
  TierSelection selection(wish);
  if (!policy.chain_solver.empty()) add_answers(policy, graph, step, wish, selection);
  const std::vector<Start> starts =
      floor.schedule ? std::vector<Start>{leanest_start(*floor.schedule, wish.below, step)}
                     : starts_of(policy, lean);
  const std::vector<CommunicationShape> shapes = communication_shapes(step);
  // What fits less fits, however the placement for more comes out.
  for (const std::int64_t bytes : {budget, floor.bytes}) {
    if (selection.found() && bytes != budget) break;
    for_each_program(
        graph, step, starts, wish.below,
        [&](const StagePlan& plan, const Start& start, const TierFloor& which) {
          selection.add(policy.name + shapes[which.shape].text,
                        placed_within(plan.program, wish.below, bytes, wish.forward, start.place));
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
