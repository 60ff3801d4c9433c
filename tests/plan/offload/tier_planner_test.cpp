// Plans that make values again and plans that move them below, under one budget.
#include "plan/offload/tier_planner.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/rotated_step.hpp"
#include "plan/program/steps_in_a_row.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

std::optional<StagePlan> recompute_only(const ModelGraph& graph, const StepShape& step,
                                        const StageRequest& wish) {
  try {
    return plan_stage(graph, step, wish);
  } catch (const PlanError&) {
    return std::nullopt;
  }
}

// Of keep-all's Program.
std::optional<double> offload_only(const ModelGraph& graph, const StepShape& step,
                                   const TierRequest& wish) {
  const Program program = make_training_program(
      graph, step, same_for_all(schedule_of(graph, "keep-all"), step.micro_batches));
  const auto offloads =
      choose_offloads(program, {wish.stage.budget_bytes, wish.below.tiers, wish.below.least_bytes});
  if (!offloads) return std::nullopt;
  return with_offloads(program, *offloads, {{Tier::Host, wish.below.tiers.at(Tier::Host).links}})
      .seconds;
}

// Of what keeping everything takes beyond the static bytes so much on the device, and all on a host
// that is reached at so many bytes a second.
TierRequest with_host(const StagePlan& most, int percent, double rate) {
  TierRequest wish;
  const Prediction& all = most.prediction;
  wish.stage.budget_bytes = all.static_bytes + (all.peak_bytes - all.static_bytes) * percent / 100;
  wish.below.tiers = {{Tier::Host, {{{0, rate}, {0, rate}}, std::int64_t{1} << 40}}};
  wish.below.least_bytes = wish.below.least_state_bytes = 0;
  return wish;
}

TEST(TierPlanner, IsNoWorseThanEitherWayAlone) {
  int better_than_both = 0;
  int rotated = 0;
  int below_the_smallest = 0;
  int cells = 0;
  int above_keep_all = 0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const ModelGraph graph =
        seed % 4 != 3 ? chain(3 + static_cast<int>(seed) / 2, 2) : random_graph(seed);
    const StepShape step = step_shape(1 + static_cast<int>(seed) % 2, 1, 0);
    const StagePlan most = plan_stage(graph, step, {std::numeric_limits<std::int64_t>::max() / 2});
    const double rate = static_cast<double>(most.prediction.peak_bytes) / most.prediction.seconds *
                        (seed % 3 == 0 ? 0.5 : 2);
    for (const int percent : {12, 40, 70}) {
      const TierRequest wish = with_host(most, percent, rate);
      const auto again = recompute_only(graph, step, wish.stage);
      const auto moved = offload_only(graph, step, wish);
      std::optional<StagePlan> both;
      try {
        both = plan_stage_on_tiers(graph, step, wish);
      } catch (const PlanError&) {
      }
      EXPECT_EQ(both.has_value() || (!again && !moved), true);
      if (!both) continue;
      ++cells;
      const double seconds = both->prediction.seconds;
      const double never = std::numeric_limits<double>::infinity();
      const double alone =
          std::min(again ? again->prediction.seconds : never, moved.value_or(never));
      EXPECT_LE(seconds, alone + 1e-12);
      EXPECT_LE(both->prediction.peak_bytes, wish.stage.budget_bytes);
      EXPECT_LE(both->least_seconds, seconds * (1 + 1e-9));
      EXPECT_GE(both->least_seconds, most.prediction.seconds * (1 - 1e-9));
      above_keep_all += both->least_seconds > most.prediction.seconds * (1 + 1e-9);
      EXPECT_EQ(both->program.peak_bytes, both->prediction.peak_bytes);
      EXPECT_NO_THROW(check_budgets(both->program, both->prediction));
      EXPECT_NO_THROW(prove(both->program, graph));
      // Of two steps, since updates may go on beside the second.
      const Program row = in_a_row(both->program, 2);
      const Program kept = in_a_row(most.program, 2);
      const Outcome outcome = interpret({{&graph, &row}}, LaneTiming::Late);
      EXPECT_EQ(outcome, interpret({{&graph, &kept}}, LaneTiming::Early));
      rotated += is_rotated(both->program);
      better_than_both += seconds < alone * (1 - 1e-9);
      below_the_smallest += !again;
    }
  }
  std::printf("%d of %d plans are faster than both ways alone, %d below the smallest budget\n",
              better_than_both, cells, below_the_smallest);
  EXPECT_GT(cells, 10);
  EXPECT_GT(better_than_both, 2);
  EXPECT_GT(above_keep_all, 2);
  EXPECT_GT(rotated, 2);
}

// Whatever its ranks exchange, and when.
TEST(TierPlanner, TheBoundOfAGridIsBelowItsPlans) {
  int above_what_is_computed = 0;
  int cells = 0;
  for (unsigned seed = 0; seed < 4; ++seed) {
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("seed {}, ZeRO {}", seed, zero));
      const ModelGraph graph =
          seed % 4 != 3 ? chain(3 + static_cast<int>(seed) / 2, 2) : random_graph(seed);
      StepShape step = step_shape(1 + static_cast<int>(seed) % 2, 2, 64);
      step.zero = zero;
      const StagePlan most =
          plan_stage(graph, step, {std::numeric_limits<std::int64_t>::max() / 2});
      double computed = 0;
      for (const Instruction& one : most.program.instructions)
        if (is_local_work(one)) computed += one.seconds;
      const double rate = static_cast<double>(most.prediction.peak_bytes) / most.prediction.seconds;
      for (const int percent : {12, 40}) {
        const TierRequest wish = with_host(most, percent, rate);
        std::optional<StagePlan> plan;
        try {
          plan = plan_stage_on_tiers(graph, step, wish);
        } catch (const PlanError&) {
          continue;
        }
        ++cells;
        EXPECT_GT(plan->least_seconds, 0);
        EXPECT_LE(plan->least_seconds, plan->prediction.seconds * (1 + 1e-9));
        above_what_is_computed += plan->least_seconds > computed * (1 + 1e-9);
      }
    }
  }
  EXPECT_GT(cells, 15);
  EXPECT_GT(above_what_is_computed, 2);
}

// The calling thread's.
class OnOneCore {
 public:
  OnOneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t core = 0; CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  cpu_set_t before_;
};

TEST(TierPlanner, HasThePlanOfOneCoreOnAll) {
  const ModelGraph graph = chain(6, 2);
  const StepShape step = step_shape(2, 1, 0);
  const StagePlan most = plan_stage(graph, step, {std::numeric_limits<std::int64_t>::max() / 2});
  const double rate = static_cast<double>(most.prediction.peak_bytes) / most.prediction.seconds;
  for (const int percent : {30, 60}) {
    const TierRequest wish = with_host(most, percent, rate);
    const StagePlan all = plan_stage_on_tiers(graph, step, wish);
    const OnOneCore bound;
    const StagePlan one = plan_stage_on_tiers(graph, step, wish);
    EXPECT_EQ(program_hash(all.program), program_hash(one.program));
    ASSERT_EQ(all.candidates.size(), one.candidates.size());
    for (std::size_t i = 0; i < all.candidates.size(); ++i) {
      EXPECT_EQ(all.candidates[i].name, one.candidates[i].name);
      EXPECT_EQ(all.candidates[i].seconds, one.candidates[i].seconds);
    }
  }
}

TEST(TierPlanner, WithoutTiersOrNeedIsPlanStage) {
  const ModelGraph graph = chain(5, 2);
  const StepShape step = step_shape(1, 1, 0);
  const StagePlan most = plan_stage(graph, step, {std::numeric_limits<std::int64_t>::max() / 2});
  const std::int64_t least = most.minimum_budget_bytes;
  for (const std::int64_t budget :
       {least, (least + most.prediction.peak_bytes) / 2, most.prediction.peak_bytes}) {
    TierRequest wish;
    wish.stage.budget_bytes = budget;
    const StagePlan alone = plan_stage(graph, step, wish.stage);
    EXPECT_EQ(program_hash(plan_stage_on_tiers(graph, step, wish).program),
              program_hash(alone.program));
  }
  TierRequest wish;
  wish.stage.budget_bytes = least - 64;
  EXPECT_THROW(plan_stage_on_tiers(graph, step, wish), PlanError);
}

TEST(TierPlanner, TheSmallestBudgetIsOneAndLessIsRefused) {
  int below = 0;
  int limited = 0;
  for (unsigned number = 0; number < 12; ++number) {
    const unsigned seed = number % 6;
    const Tier tier = number < 6 ? Tier::Disk : Tier::Host;
    SCOPED_TRACE(std::string(to_string(tier)) + " " + std::to_string(seed));
    const ModelGraph graph =
        seed % 3 != 2 ? chain(3 + static_cast<int>(seed), 2) : random_graph(seed);
    const StepShape step = step_shape(1 + static_cast<int>(seed) % 2, 1, 0);
    const LeanPlans lean = find_lean_plans(graph, step, "auto");
    std::int64_t with_more = lean.bytes;
    for (const std::int64_t room : {0, 1 << 12, 1 << 15, 1 << 30}) {
      SCOPED_TRACE(room);
      TierRequest wish;
      wish.below.tiers = {{tier, {{{0, 1e6}, {0, 1e6}}, room, 4096}}};
      wish.below.least_bytes = wish.below.least_state_bytes = 0;
      const TierFloor floor = find_tier_floor(graph, step, lean, wish.below, nullptr);
      EXPECT_LE(floor.bytes, with_more);
      if (room == 0) {
        EXPECT_EQ(floor.bytes, lean.bytes);
      }
      limited += room > 0 && floor.bytes < with_more;
      with_more = floor.bytes;
      wish.stage.lean = &lean;
      wish.floor = &floor;
      wish.stage.budget_bytes = floor.bytes;
      const StagePlan plan = plan_stage_on_tiers(graph, step, wish);
      EXPECT_LE(plan.prediction.peak_bytes, floor.bytes);
      EXPECT_LE(plan.prediction.of(tier).peak_bytes, room);
      EXPECT_EQ(plan.prediction.of(tier).peak_bytes % 4096, 0);
      EXPECT_NO_THROW(prove(plan.program, graph));
      wish.stage.budget_bytes = floor.bytes - 1;
      try {
        plan_stage_on_tiers(graph, step, wish);
        ADD_FAILURE() << "fits less than the smallest budget";
      } catch (const PlanError& error) {
        EXPECT_EQ(error.needed_bytes(), floor.bytes);
      }
    }
    below += with_more < lean.bytes;
  }
  EXPECT_EQ(below, 12);
  EXPECT_GT(limited, 12);
}

// A host with room for little beside a disk with room for all.
TEST(TierPlanner, EachOfTwoTiersIsWithinItsBudget) {
  int both = 0;
  for (unsigned seed = 0; seed < 6; ++seed) {
    const ModelGraph graph =
        seed % 3 != 2 ? chain(3 + static_cast<int>(seed), 2) : random_graph(seed);
    const StepShape step = step_shape(1 + static_cast<int>(seed) % 2, 1, 0);
    const LeanPlans lean = find_lean_plans(graph, step, "auto");
    for (const std::int64_t room : {0, 1 << 13, 1 << 15, 1 << 30}) {
      SCOPED_TRACE(std::to_string(seed) + ", room " + std::to_string(room));
      TierRequest wish;
      wish.below.tiers = {{Tier::Host, {{{0, 1e7}, {0, 1e7}}, room, 4096}},
                          {Tier::Disk, {{{0, 1e6}, {0, 1e6}}, 1 << 30, 4096}}};
      wish.below.least_bytes = wish.below.least_state_bytes = 0;
      wish.stage.lean = &lean;
      wish.stage.budget_bytes = find_tier_floor(graph, step, lean, wish.below, nullptr).bytes;
      const StagePlan plan = plan_stage_on_tiers(graph, step, wish);
      EXPECT_LE(plan.prediction.peak_bytes, wish.stage.budget_bytes);
      EXPECT_LE(plan.prediction.of(Tier::Host).peak_bytes, room);
      EXPECT_NO_THROW(prove(plan.program, graph));
      both += plan.prediction.of(Tier::Host).peak_bytes > 0 &&
              plan.prediction.of(Tier::Disk).peak_bytes > 0;
    }
  }
  EXPECT_GT(both, 0);
}

}  // namespace
}  // namespace garonne::plan::test
