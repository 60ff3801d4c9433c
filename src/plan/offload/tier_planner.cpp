#include "plan/offload/tier_planner.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/in_threads.hpp"
#include "base/index.hpp"
#include "plan/model/communication_shape.hpp"
#include "plan/offload/mover.hpp"
#include "plan/offload/offload_policy.hpp"
#include "plan/offload/policy_planner.hpp"
#include "plan/offload/tier_moves.hpp"
#include "plan/offload/tier_selection.hpp"

namespace garonne::plan {
namespace {

// With all that is idle away, or with as much as a small tier has room for. What is not below
// `of_interest` need not be the least.
std::int64_t least_bytes_of(const Program& program, std::int64_t at_least, const LowerTiers& below,
                            const Program* forward, std::int64_t of_interest) {
  const TierMoves moves(program, below, forward);
  return least_that_fits(
      at_least, whole_bytes(program, forward), [&](std::int64_t bytes) { return moves.can(bytes); },
      of_interest);
}

// Of plans that are to be made smaller by what they move. The same ones for all budgets, but that
// those which are not above `budget` need no tier.
std::vector<std::int64_t> larger_budgets(std::int64_t budget, std::int64_t least,
                                         std::int64_t whole, int mixtures) {
  std::set<std::int64_t> budgets;
  for (int mixture = 0; mixture <= mixtures && whole > least; ++mixture)
    budgets.insert(least + (whole - least) * mixture / mixtures);
  return {budgets.upper_bound(budget), budgets.end()};
}

// What larger budgets' plans make room for when they move, in the order of the budgets. That of the
// largest, which runs least twice, is there first: what has to take longer need not be moved.
void add_larger(const ModelGraph& graph, const StepShape& step, const TierRequest& wish,
                const std::vector<std::int64_t>& budgets, TierSelection& selection) {
  std::vector<std::optional<TierSelection>> found(budgets.size());
  const auto find = [&](std::size_t i, double useless_seconds) {
    StageRequest larger = wish.stage;
    larger.reserved_bytes = 0;  // of what has moved, the selection asks
    larger.budget_bytes = budgets[i];
    found[i].emplace(wish, useless_seconds);
    try {
      found[i]->consider(plan_stage(graph, step, larger));
    } catch (const PlanError&) {
      // Not even that is enough to run anything twice.
    }
  };
  if (budgets.empty()) return;
  const std::size_t largest = budgets.size() - 1;
  find(largest, selection.seconds());
  const double useless_seconds = std::min(selection.seconds(), found[largest]->seconds());
  in_threads(static_cast<int>(largest), [&](int i) { find(as_index(i), useless_seconds); });
  for (auto& one : found) selection.add(std::move(*one));
}

// What all lean schedules move, not that of the smallest budget alone: which one that is depends on
// the room below.
void add_lean(const ModelGraph& graph, const StepShape& step, const TierRequest& wish,
              TierSelection& selection) {
  const std::vector<CommunicationShape> shapes = communication_shapes(step);
  const std::vector<LeanPlans::Entry>& entries = wish.stage.lean->entries;
  std::vector<TierSelection> found(shapes.size() * entries.size(),
                                   TierSelection(wish, selection.seconds()));
  in_threads(static_cast<int>(found.size()), [&](int i) {
    const std::size_t shape = as_index(i) / entries.size();
    found[as_index(i)].consider(
        lean_plan(graph, shapes[shape], entries[as_index(i) % entries.size()]));
  });
  for (TierSelection& one : found) selection.add(std::move(one));
}

}  // namespace

TierFloor find_tier_floor(const ModelGraph& declared, const StepShape& step, const LeanPlans& lean,
                          const LowerTiers& below, const Program* forward) {
  const std::int64_t reserved_bytes = forward == nullptr ? 0 : forward->peak_bytes;
  TierFloor best{std::max(lean.bytes, reserved_bytes), lean.entry, lean.shape};
  if (below.empty()) return best;
  const std::vector<CommunicationShape> shapes = communication_shapes(step);
  std::vector<TierFloor> all;
  const auto program_of = [&](const TierFloor& floor) {
    Program program = lean_plan(declared, shapes[floor.shape], lean.entries[floor.entry]).program;
    set_tiers(below.tiers, program);
    return program;
  };
  for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
    for (std::size_t entry = 0; entry < lean.entries.size(); ++entry) {
      TierFloor floor{0, entry, shape};
      const Program program = program_of(floor);
      floor.bytes = TierMoves(program, below, nullptr).least_bytes();
      all.push_back(floor);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const TierFloor& a, const TierFloor& b) { return a.bytes < b.bytes; });
  for (TierFloor& floor : all) {
    if (floor.bytes >= best.bytes) break;
    floor.bytes = least_bytes_of(program_of(floor), floor.bytes, below, forward, best.bytes);
    if (floor.bytes < best.bytes) best = floor;
  }
  return best;
}

StagePlan plan_stage_on_tiers(const ModelGraph& graph, const StepShape& step,
                              const TierRequest& given) {
  if (const OffloadPolicy* const policy = offload_policy(given.stage.plan))
    return plan_by_policy(*policy, graph, step, given);
  TierRequest wish = given;
  const std::int64_t budget = wish.stage.budget_bytes;
  if (wish.below.empty() ||
      (wish.stage.first_that_fits && wish.stage.plan == "auto" &&
       budget >= wish.stage.reserved_bytes && keeping_everything_fits(graph, step, budget))) {
    return plan_stage(graph, step, wish.stage);
  }
  std::optional<LeanPlans> lean;
  if (wish.stage.lean == nullptr) {
    lean = find_lean_plans(graph, step, wish.stage.plan, wish.stage.cache);
    wish.stage.lean = &*lean;
  }
  TierFloor floor;
  if (wish.floor == nullptr) {
    floor = find_tier_floor(graph, step, *wish.stage.lean, wish.below, wish.forward);
    wish.floor = &floor;
  }
  const std::int64_t least = std::max(
      wish.floor->bytes, wish.below.states || wish.below.weights ? 0 : wish.stage.reserved_bytes);
  expect_budget(least, budget, wish.stage.plan);
  TierSelection selection(wish);
  std::exception_ptr refusal;
  try {
    selection.start(plan_stage(graph, step, wish.stage));
  } catch (const PlanError&) {
    refusal = std::current_exception();
  }
  StageRequest most = wish.stage;
  most.reserved_bytes = 0;
  most.budget_bytes = std::numeric_limits<std::int64_t>::max() / 2;
  const StagePlan all = plan_stage(graph, step, most);
  const std::int64_t whole = all.prediction.peak_bytes;
  add_larger(graph, step, wish,
             larger_budgets(budget, wish.stage.lean->bytes, whole, wish.mixtures), selection);
  add_lean(graph, step, wish, selection);
  // What fits less fits, however the choices for more come out.
  if (!selection.found()) {
    selection.consider(lean_plan(graph, communication_shapes(step).at(wish.floor->shape),
                                 wish.stage.lean->entries.at(wish.floor->entry)),
                       wish.floor->bytes);
  }
  if (!selection.found()) std::rethrow_exception(refusal);
  StagePlan plan = selection.take();
  plan.minimum_budget_bytes = least;
  plan.least_seconds = least_seconds_of(graph, step, wish);
  return plan;
}

}  // namespace garonne::plan
