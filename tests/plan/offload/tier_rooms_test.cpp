// Plans where tiers below the device have room for a part of what might move there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/offload/tier_planner.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

constexpr std::int64_t ample = std::int64_t{1} << 40;
constexpr std::int64_t page = 4096;

// A step with what it takes at least without tiers, and at most.
struct Case {
  Case(unsigned seed, Tier below)
      : tier(below),
        graph(seed % 3 != 2 ? chain(3 + static_cast<int>(seed) / 2, 2) : random_graph(seed)),
        step(step_shape(1 + static_cast<int>(seed) % 2, 1, 0)),
        lean(find_lean_plans(graph, step, "auto")),
        most(plan_stage(graph, step, {std::numeric_limits<std::int64_t>::max() / 2}).prediction),
        slow(seed % 2 == 0) {}

  TierRequest wish(std::int64_t budget, std::int64_t room) const {
    const double rate = static_cast<double>(most.peak_bytes) / most.seconds * (slow ? 0.5 : 3);
    TierRequest one;
    one.stage.budget_bytes = budget;
    one.stage.lean = &lean;
    one.below.tiers = {{tier, {{{0, rate}, {0, rate}}, room, page, rate}}};
    one.below.activations = activations;
    one.below.least_bytes = one.below.least_state_bytes = 0;
    return one;
  }
  const TierFloor& floor(std::int64_t room) {
    const auto [found, fresh] = floors.try_emplace(room);
    if (fresh) found->second = find_tier_floor(graph, step, lean, wish(0, room).below, nullptr);
    return found->second;
  }
  std::optional<StagePlan> plan(std::int64_t budget, std::int64_t room) {
    TierRequest one = wish(budget, room);
    one.floor = &floor(room);
    try {
      return plan_stage_on_tiers(graph, step, one);
    } catch (const PlanError&) {
      return std::nullopt;
    }
  }
  std::int64_t used(const StagePlan& plan) const { return plan.prediction.of(tier).peak_bytes; }
  // By other code than the planner's.
  void expect_within(const StagePlan& plan, std::int64_t budget, std::int64_t room) const {
    const Prediction again = replay(plan.program);
    EXPECT_LE(again.peak_bytes, budget);
    EXPECT_LE(again.of(tier).peak_bytes, room);
    EXPECT_NO_THROW(check_budgets(plan.program, again));
    EXPECT_NO_THROW(prove(plan.program, graph));
  }

  Tier tier;
  ModelGraph graph;
  StepShape step;
  LeanPlans lean;
  Prediction most;
  bool slow;
  bool activations = true;                        // may move
  std::map<std::int64_t, TierFloor> floors = {};  // by room below
};

template <class Work>
void for_cases(unsigned seeds, const Work& work) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    for (const Tier tier : {Tier::Host, Tier::Disk}) {
      SCOPED_TRACE(std::string(to_string(tier)) + ", seed " + std::to_string(seed));
      Case one(seed, tier);
      work(one);
    }
  }
}

std::int64_t between(std::int64_t least, std::int64_t most, int percent) {
  return least + (most - least) * percent / 100;
}

TEST(TierRooms, APlanIsFoundAgainWithTheRoomThatItTakes) {
  int found = 0;
  for_cases(3, [&](Case& one) {
    const std::int64_t least = one.floor(ample).bytes;
    for (const int percent : {0, 10, 25, 45, 70}) {
      const std::int64_t budget = between(least, one.most.peak_bytes, percent);
      const std::optional<StagePlan> with_more = one.plan(budget, ample);
      ASSERT_TRUE(with_more);
      const std::int64_t room = one.used(*with_more);
      if (room == 0) continue;
      ++found;
      const std::optional<StagePlan> again = one.plan(budget, room);
      ASSERT_TRUE(again) << percent << " %, " << room;
      EXPECT_LE(again->prediction.seconds, with_more->prediction.seconds) << percent << " %";
      one.expect_within(*again, budget, room);
    }
  });
  std::printf("%d plans use a tier\n", found);
  EXPECT_GT(found, 15);
}

TEST(TierRooms, WithMoreRoomNoPlanIsLostOrSlower) {
  int partial = 0;
  for_cases(4, [&](Case& one) {
    const std::int64_t least = one.floor(ample).bytes;
    for (const int percent : {15, 40}) {
      const std::int64_t budget = between(least, one.most.peak_bytes, percent);
      const std::int64_t most = one.used(*one.plan(budget, ample));
      double before = std::numeric_limits<double>::infinity();
      bool was_found = false;
      for (const int part : {0, 20, 50, 80, 100, 200}) {
        SCOPED_TRACE(std::to_string(percent) + " %, room " + std::to_string(part) + " %");
        const std::int64_t room = most * part / 100;
        const std::optional<StagePlan> plan = one.plan(budget, room);
        EXPECT_TRUE(plan || !was_found);
        if (!plan) continue;
        was_found = true;
        one.expect_within(*plan, budget, room);
        EXPECT_LE(plan->prediction.seconds, before);
        before = plan->prediction.seconds;
        partial += part < 100 && one.used(*plan) > 0;
      }
    }
  });
  std::printf("%d plans are of less room than the one with plenty takes\n", partial);
  EXPECT_GT(partial, 5);
}

// A plan is the best of some that are looked for within its budget, so that one for less may be the
// faster one, though seldom and by little. What only runs again is never slower with more.
TEST(TierRooms, WithMoreOfTheDeviceFewPlansAreSlower) {
  int pairs = 0;
  int slower = 0;
  double most = 0;
  constexpr int parts = 10;
  for_cases(6, [&](Case& one) {
    const std::int64_t least = one.floor(ample).bytes;
    double before = std::numeric_limits<double>::infinity();
    double without = std::numeric_limits<double>::infinity();
    for (int part = 0; part <= parts; ++part) {
      const std::int64_t budget = between(least, one.most.peak_bytes, 100 * part / parts);
      const std::optional<StagePlan> plan = one.plan(budget, ample);
      ASSERT_TRUE(plan);
      const double seconds = plan->prediction.seconds;
      pairs += part > 0;
      slower += seconds > before;
      most = std::max(most, seconds / before - 1);
      before = seconds;
      if (budget < one.lean.bytes) continue;
      const double alone = plan_stage(one.graph, one.step, {budget}).prediction.seconds;
      EXPECT_LE(alone, without) << part;
      EXPECT_LE(seconds, alone) << part;
      without = alone;
    }
    EXPECT_EQ(before, one.most.seconds);
  });
  std::printf("%d of %d plans are slower with more of the device, by %.1f %% at most\n", slower,
              pairs, 100 * most);
  EXPECT_EQ(pairs, 12 * parts);
  EXPECT_LE(20 * slower, pairs);
  EXPECT_LE(most, 0.1);
}

// What a plan with plenty of room takes is enough room for its budget, but for plans whose passes
// are none of the lean ones: smallest budgets are of those.
TEST(TierRooms, TheSmallestBudgetIsNoMoreThanAnotherPlanHas) {
  int cells = 0;
  int more = 0;
  for (const bool activations : {true, false}) {
    for_cases(6, [&](Case& one) {
      one.activations = activations;
      const std::int64_t least = one.floor(ample).bytes;
      for (const int percent : {10, 25, 40, 60}) {
        SCOPED_TRACE(std::to_string(activations) + ", " + std::to_string(percent) + " %");
        const std::int64_t budget = between(least, one.lean.bytes, percent);
        const std::optional<StagePlan> plan = one.plan(budget, ample);
        ASSERT_TRUE(plan);
        more += one.floor(one.used(*plan)).bytes > budget;
        ++cells;
      }
    });
  }
  std::printf("%d of %d smallest budgets are more\n", more, cells);
  EXPECT_EQ(cells, 96);
  EXPECT_LE(more, 1);
}

TEST(TierRooms, TheSmallestBudgetIsTrueAndFallsWithRoom) {
  int steps = 0;
  int between_the_ends = 0;
  for_cases(3, [&](Case& one) {
    const std::int64_t least = one.floor(ample).bytes;
    const std::int64_t most = one.used(*one.plan(least, ample));
    std::int64_t before = one.lean.bytes;
    for (const int part : {0, 20, 40, 60, 80, 100, 150}) {
      SCOPED_TRACE(std::to_string(part) + " %");
      const std::int64_t room = most * part / 100;
      const std::int64_t bytes = one.floor(room).bytes;
      EXPECT_LE(bytes, before);
      steps += bytes < before;
      between_the_ends += bytes < one.lean.bytes && bytes > least;
      before = bytes;
      const std::optional<StagePlan> plan = one.plan(bytes, room);
      ASSERT_TRUE(plan);
      EXPECT_EQ(plan->minimum_budget_bytes, bytes);
      one.expect_within(*plan, bytes, room);
      EXPECT_FALSE(one.plan(bytes - 1, room));
    }
    EXPECT_EQ(before, least);
  });
  std::printf("%d steps down, %d smallest budgets are those of a part\n", steps, between_the_ends);
  EXPECT_GT(steps, 24);
}

}  // namespace
}  // namespace garonne::plan::test
