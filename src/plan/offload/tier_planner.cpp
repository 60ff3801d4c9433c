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
#include "plan/model/communication_shape.hpp"
#include "plan/offload/bandwidth_bound.hpp"
#include "plan/offload/mover.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

// Budgets between the given one and keep-all's whose plans are tried: what is made again and what
// is moved are mixed in so many ways.
constexpr int mixtures = 6;

std::pair<double, std::int64_t> key(const StagePlan& plan) {
  return {plan.prediction.seconds, plan.prediction.peak_bytes};
}

void set_tiers(const std::map<Tier, LowerTier>& tiers, Program& program) {
  for (const auto& [tier, below] : tiers) {
    program.tier(tier).budget_bytes = below.budget_bytes;
    program.tier(tier).granularity = below.granularity;
  }
}

// A lean schedule in one of its shapes.
StagePlan lean_plan(const ModelGraph& graph, const CommunicationShape& shape,
                    const LeanPlans::Entry& entry) {
  StagePlan plan;
  plan.program = make_training_program(graph, shape.step, entry.schedule);
  plan.prediction = replay(plan.program);
  plan.program.name = entry.solver->name + shape.text;
  plan.program.peak_bytes = plan.prediction.peak_bytes;
  plan.program.seconds = plan.prediction.seconds;
  return plan;
}

// With all that is idle away, or with as much as a small tier has room for.
std::int64_t least_bytes_of(const Program& program, std::int64_t at_least, const LowerTiers& below,
                            const Program* forward) {
  const auto fits = [&](std::int64_t bytes) { return Mover(program, below, bytes, forward).can(); };
  if (fits(at_least)) return at_least;
  std::int64_t too_little = at_least;
  std::int64_t enough = std::max(program.peak_bytes, forward == nullptr ? 0 : forward->peak_bytes);
  while (enough - too_little > cpu_allocation_granularity) {
    const std::int64_t middle =
        too_little + round_up((enough - too_little) / 2, cpu_allocation_granularity);
    (fits(middle) ? enough : too_little) = middle;
  }
  return enough;
}

// The candidates of a stage with tiers below it, and the best of them.
class TierSelection {
 public:
  explicit TierSelection(const TierWish& wish) : wish_(wish) {}

  void start(StagePlan plan) { best_ = std::move(plan); }

  void consider(StagePlan without) {
    set_tiers(wish_.below.tiers, without.program);
    const std::string name = without.program.name;
    for (MovedProgram& moved :
         Mover(without.program, wish_.below, wish_.stage.budget_bytes, wish_.forward).run()) {
      StagePlan plan;
      plan.program = std::move(moved.program);
      plan.program.name = name + moved.how;
      plan.program.tier(Tier::Device).budget_bytes = wish_.stage.budget_bytes;
      plan.prediction = replay(plan.program);
      consider(std::move(plan), moved.reserved_bytes);
    }
  }

  bool found() const { return best_.has_value(); }
  StagePlan take() {
    best_->candidates.insert(best_->candidates.end(), candidates_.begin(), candidates_.end());
    return std::move(*best_);
  }

 private:
  void consider(StagePlan plan, std::int64_t reserved_bytes) {
    const std::int64_t needed = std::max(plan.prediction.peak_bytes, reserved_bytes);
    const StageCandidate candidate{plan.program.name, plan.prediction.peak_bytes,
                                   plan.prediction.seconds, needed <= wish_.stage.budget_bytes};
    note_candidate(candidate, candidates_);
    if (!candidate.fits || (best_ && key(*best_) <= key(plan))) return;
    plan.candidates = best_ ? std::move(best_->candidates) : std::vector<StageCandidate>();
    best_ = std::move(plan);
  }

  const TierWish& wish_;
  std::optional<StagePlan> best_;
  std::vector<StageCandidate> candidates_;
};

// Of plans that are to be made smaller by what they move: between what is given and what keeps
// everything, and so much that what lasts is enough.
std::set<std::int64_t> larger_budgets(std::int64_t budget, std::int64_t whole,
                                      const std::set<std::int64_t>& lasting_bytes) {
  std::set<std::int64_t> budgets;
  for (int mixture = 1; mixture <= mixtures && whole > budget; ++mixture)
    budgets.insert(budget + (whole - budget) * mixture / mixtures);
  for (const std::int64_t bytes : lasting_bytes) {
    if (bytes > 0 && whole > budget) budgets.insert(std::min(whole, budget + bytes));
  }
  return budgets;
}

std::set<std::int64_t> lasting_bytes(const Program& program, LowerTiers below) {
  std::set<std::int64_t> bytes = {movable_bytes(program, below)};
  below.weights = below.gradients = false;
  bytes.insert(movable_bytes(program, below));
  return bytes;
}

// Of a rank by itself: what waits for others is another matter.
double least_seconds_of(const ModelGraph& graph, const StepShape& step, const TierWish& wish) {
  if (step.world_group.size() > 1) return 0;
  Program program = make_training_program(
      graph, step,
      same_for_all(stage_solvers().front().schedules(graph).front(), step.micro_batches));
  set_tiers(wish.below.tiers, program);
  if (wish.below.states && wish.below.tiers.contains(Tier::Host)) {
    // Updates that the host does take none of the device's time.
    for (Instruction& instruction : program.instructions) {
      if (instruction.operation == Operation::Update ||
          instruction.operation == Operation::SumTensors)
        instruction.seconds = 0;
    }
  }
  // What lasts and gradients come and go as if that took nothing.
  const std::int64_t budget_bytes = wish.stage.budget_bytes + movable_bytes(program, wish.below);
  return least_step_seconds(program, {budget_bytes, wish.below.tiers, wish.below.least_bytes},
                            &graph);
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
      floor.bytes = Mover(program_of(floor), below, 0, nullptr).least_bytes();
      all.push_back(floor);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const TierFloor& a, const TierFloor& b) { return a.bytes < b.bytes; });
  for (TierFloor& floor : all) {
    if (floor.bytes >= best.bytes) break;
    floor.bytes = least_bytes_of(program_of(floor), floor.bytes, below, forward);
    if (floor.bytes < best.bytes) best = floor;
  }
  return best;
}

StagePlan plan_stage_on_tiers(const ModelGraph& graph, const StepShape& step,
                              const TierWish& given) {
  TierWish wish = given;
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
  StageWish most = wish.stage;
  most.reserved_bytes = 0;  // of what has moved, the selection asks
  most.budget_bytes = std::numeric_limits<std::int64_t>::max() / 2;
  const StagePlan all = plan_stage(graph, step, most);
  const std::int64_t whole = all.prediction.peak_bytes;
  for (const std::int64_t bytes :
       larger_budgets(budget, whole, lasting_bytes(all.program, wish.below))) {
    StageWish larger = most;
    larger.budget_bytes = bytes;
    try {
      selection.consider(plan_stage(graph, step, larger));
    } catch (const PlanError&) {
      // Not even that is enough to run anything twice.
    }
  }
  selection.consider(lean_plan(graph, communication_shapes(step).at(wish.floor->shape),
                               wish.stage.lean->entries.at(wish.floor->entry)));
  if (!selection.found()) std::rethrow_exception(refusal);
  StagePlan plan = selection.take();
  plan.minimum_budget_bytes = least;
  plan.least_seconds = least_seconds_of(graph, step, wish);
  return plan;
}

}  // namespace garonne::plan
