// Published ways to be below the device: what lasts where, the step of plain training, the smallest
// budget.
#include "plan/offload/offload_policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/offload/data_ranks.hpp"
#include "plan/offload/policy_case.hpp"
#include "plan/offload/policy_planner.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan::test {
namespace {

LowerTiers roomy(Tier tier, std::int64_t bytes = plenty) {
  LowerTiers below;
  below.tiers = {{tier, {{{1e-6, 1e9}, {2e-6, 2e9}}, bytes, 4096}}};
  below.least_bytes = below.least_state_bytes = 0;
  return below;
}

bool is_state(const Buffer& buffer) {
  return buffer.kind == BufferKind::MasterParameter || buffer.kind == BufferKind::OptimizerState;
}

// Every state is below, and with `all` every parameter.
void expect_below(const Program& program, bool all) {
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.live_at_start || buffer.bytes == 0) continue;
    const bool goes = is_state(buffer) || (all && buffer.kind == BufferKind::Parameter);
    if (goes) {
      EXPECT_NE(buffer.tier, Tier::Device) << buffer.name;
    }
  }
}

class Policies : public testing::TestWithParam<const char*> {
 protected:
  const OffloadPolicy& policy() const { return *offload_policy(GetParam()); }
  bool is_infinity() const { return policy().name == "zero-infinity"; }
};

INSTANTIATE_TEST_SUITE_P(Rows, Policies, testing::Values("zero-offload", "zero-infinity"),
                         name_of_test);

TEST(OffloadPolicies, AllOfTheRegistryAreTested) {
  std::vector<std::string> names;
  for (const OffloadPolicy& policy : offload_policies()) names.push_back(policy.name);
  // Those of chains in chain_policy_test.cpp.
  EXPECT_EQ(names, (std::vector<std::string>{"zero-offload", "zero-infinity", "pofo",
                                             "offload-greedy", "offload-greedy-star"}));
  const auto all = plans_with_offload();
  for (const std::string& name : names) {
    EXPECT_EQ(
        std::count_if(all.begin(), all.end(), [&](const auto& row) { return row.first == name; }),
        1);
  }
}

TEST_P(Policies, TheStepIsTheSameFromTheSmallestBudgetOn) {
  int cells = 0;
  int copied_values = 0;
  int run_again = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    const int zero = static_cast<int>(seed % 4);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", ZeRO " + std::to_string(zero));
    const TieredCase one = tiered_case(seed, Tier::Host, zero);
    const Tier tier = is_infinity() && seed % 3 == 0 ? Tier::Disk : Tier::Host;
    const LeanPlans lean = find_lean_plans(one.graph, one.step, policy().schedule);
    TierRequest wish;
    wish.below = roomy(tier);
    wish.stage.plan = policy().name;
    wish.stage.lean = &lean;
    const TierFloor floor =
        find_policy_floor(policy(), one.graph, one.step, lean, wish.below, nullptr);
    wish.floor = &floor;
    EXPECT_LT(floor.bytes, lean.bytes);
    const Outcome wanted =
        outcome_of(ranks_of(one.program, one.graph, one.step), one.graph, LaneTiming::Early);
    ASSERT_EQ(wanted.failed, "");
    double before = std::numeric_limits<double>::infinity();
    for (const std::int64_t budget : {floor.bytes, (floor.bytes + lean.bytes) / 2, plenty}) {
      wish.stage.budget_bytes = budget;
      const StagePlan plan = plan_stage_on_tiers(one.graph, one.step, wish);
      ++cells;
      expect_step_of(plan, policy().name, budget, floor.bytes, one, wanted, seed);
      EXPECT_LE(plan.prediction.seconds, before * (1 + 1e-9)) << "more room takes longer";
      before = plan.prediction.seconds;
      expect_below(plan.program, is_infinity());
      for (const Instruction& instruction : plan.program.instructions) {
        run_again += instruction.recompute;
        if (!is_copy(instruction.operation)) continue;
        const BufferKind kind =
            plan.program.buffers[as_index(instruction.arguments.inputs[0])].kind;
        copied_values += kind == BufferKind::Value;
        // Of what is updated below nothing comes.
        if (!is_infinity()) {
          EXPECT_FALSE(kind == BufferKind::OptimizerState || kind == BufferKind::Value);
        }
      }
      if (!is_infinity()) {
        for (const Instruction& instruction : plan.program.instructions)
          EXPECT_NE(instruction.operation, Operation::Update);
      }
    }
    wish.stage.budget_bytes = floor.bytes - 1;
    try {
      plan_stage_on_tiers(one.graph, one.step, wish);
      ADD_FAILURE() << "fits less than the smallest budget";
    } catch (const PlanError& error) {
      EXPECT_EQ(error.needed_bytes(), floor.bytes);
    }
  }
  std::printf("%d Programs, %d passes run again, %d copies of values\n", cells, run_again,
              copied_values);
  EXPECT_EQ(run_again > 0, is_infinity());
  EXPECT_EQ(copied_values > 0, is_infinity());
}

// The tier has room to the byte, and less is refused with what it takes.
TEST_P(Policies, ATierThatIsTooSmallIsRefusedWithWhatItTakes) {
  const Tier tier = Tier::Host;
  const TieredCase one = tiered_case(3, tier);
  const LeanPlans lean = find_lean_plans(one.graph, one.step, policy().schedule);
  const auto floor_with = [&](std::int64_t bytes) {
    return find_policy_floor(policy(), one.graph, one.step, lean, roomy(tier, bytes), nullptr);
  };
  try {
    floor_with(4096);
    FAIL() << "a page has room for everything";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("memory.host_budget"), std::string::npos) << text;
    EXPECT_NE(text.find(policy().name), std::string::npos) << text;
    const auto number = text.find("less than the ");
    ASSERT_NE(number, std::string::npos) << text;
    const std::int64_t needed = std::stoll(text.substr(number + 14));
    TierRequest wish;
    wish.below = roomy(tier, needed);
    wish.stage.plan = policy().name;
    wish.stage.budget_bytes = floor_with(needed).bytes;
    const StagePlan plan = plan_stage_on_tiers(one.graph, one.step, wish);
    EXPECT_LE(plan.prediction.of(tier).peak_bytes, needed);
    EXPECT_LE(plan.prediction.peak_bytes, wish.stage.budget_bytes);
  }
}

TEST_P(Policies, WithoutATierThereIsNone) {
  const TieredCase one = tiered_case(1, Tier::Host);
  TierRequest wish;
  wish.stage.plan = policy().name;
  wish.stage.budget_bytes = plenty;
  EXPECT_THROW(plan_stage_on_tiers(one.graph, one.step, wish), ConfigError);
}

// A validation has its parameters where training has them, within the same budget.
TEST_P(Policies, AValidationFitsBeside) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    const TieredCase one = tiered_case(seed, Tier::Host, static_cast<int>(seed % 4));
    Program forward = make_forward_program(one.graph, one.step, one.graph.loss);
    forward.peak_bytes = replay(forward).peak_bytes;
    const LeanPlans lean = find_lean_plans(one.graph, one.step, policy().schedule);
    TierRequest wish;
    wish.below = roomy(Tier::Host);
    wish.stage.plan = policy().name;
    wish.stage.lean = &lean;
    wish.forward = &forward;
    wish.stage.budget_bytes =
        find_policy_floor(policy(), one.graph, one.step, lean, wish.below, &forward).bytes;
    const StagePlan plan = plan_stage_on_tiers(one.graph, one.step, wish);
    const auto placed = with_lasting_as(forward, plan.program,
                                        {{Tier::Host, wish.below.tiers.at(Tier::Host).links}},
                                        wish.stage.budget_bytes);
    ASSERT_TRUE(placed.has_value());
    EXPECT_LE(placed->peak_bytes, wish.stage.budget_bytes);
  }
}

}  // namespace
}  // namespace garonne::plan::test
