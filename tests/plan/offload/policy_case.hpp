// What a plan of any policy holds: its budget and the step of plain training.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/offload/data_ranks.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/rotated_step.hpp"
#include "plan/program/steps_in_a_row.hpp"
#include "plan/stage/stage_planner.hpp"

namespace garonne::plan::test {

// Names of policies have dashes, and those of tests none.
inline std::string name_of_test(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

// The plan of `one` within `budget`, by the policy `name` with that smallest budget, makes `wanted`
// whatever the order of its lanes.
inline void expect_step_of(const StagePlan& plan, const std::string& name, std::int64_t budget,
                           std::int64_t smallest_budget, const TieredCase& one,
                           const Outcome& wanted, unsigned seed) {
  EXPECT_TRUE(plan.program.name.starts_with(name));
  EXPECT_LE(plan.prediction.peak_bytes, budget);
  EXPECT_EQ(plan.program.peak_bytes, replay(plan.program).peak_bytes);
  EXPECT_EQ(plan.minimum_budget_bytes, smallest_budget);
  EXPECT_LE(plan.least_seconds, plan.prediction.seconds * (1 + 1e-9));
  EXPECT_NO_THROW(check_budgets(plan.program, plan.prediction));
  const std::vector<Program> programs = ranks_of(plan.program, one.graph, one.step);
  for (const Program& program : programs) {
    EXPECT_NO_THROW(prove(program, one.graph));
    EXPECT_NO_THROW(prove(program, implied_model(program)));
    GridShape grid;
    grid.data = static_cast<int>(one.step.data_group.size());
    EXPECT_NO_THROW(check_rank_sums(program, grid));
  }
  // Updates may go on beside the next step.
  const auto each = [](std::vector<Program> of, const auto& change) {
    for (Program& program : of) program = change(program);
    return of;
  };
  const auto two_steps = [](const Program& program) { return in_a_row(program, 2); };
  const std::vector<Program> whole = each(programs, as_whole_step);
  const std::vector<Program> rows = each(programs, two_steps);
  const Outcome wanted_of_two = outcome_of(
      each(ranks_of(one.program, one.graph, one.step), two_steps), one.graph, LaneTiming::Early);
  for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random}) {
    EXPECT_EQ(outcome_of(whole, one.graph, timing, seed), wanted);
    EXPECT_EQ(outcome_of(rows, one.graph, timing, seed), wanted_of_two);
  }
}

}  // namespace garonne::plan::test
