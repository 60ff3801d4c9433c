// Refusals of budgets of which libraries have a part.
#include "train/setup/whole_budget.hpp"

#include <gtest/gtest.h>

#include <string>

namespace garonne::train {
namespace {

constexpr std::int64_t kept = std::int64_t{64} << 20;

TEST(WholeBudget, ARefusalIsInBytesOfTheBudgetAndSaysWhoseTheRestIs) {
  const PlanError whole = of_whole_budget(PlanError(3000, 1000, "for validation"), kept);
  EXPECT_EQ(whole.needed_bytes(), 3000 + kept);
  EXPECT_EQ(whole.available_bytes(), 1000 + kept);
  const std::string said = whole.what();
  EXPECT_NE(said.find("memory.budget = 67109864 bytes"), std::string::npos) << said;
  EXPECT_NE(said.find("smallest budget that works is 67111864 bytes"), std::string::npos) << said;
  EXPECT_NE(said.find("of both 64.00 MiB are workspaces of libraries; for validation"),
            std::string::npos)
      << said;
  const std::string without = of_whole_budget(PlanError(3000, 1000, ""), kept).what();
  EXPECT_TRUE(without.ends_with("are workspaces of libraries")) << without;
}

TEST(WholeBudget, WhatIsPlannedComesBackAndOtherErrorsAreAsTheyAre) {
  EXPECT_EQ(plan_beside_libraries(kept, [] { return 7; }), 7);
  const auto refused = [](std::int64_t bytes) {
    try {
      plan_beside_libraries(bytes, []() -> int { throw PlanError(3000, 1000, ""); });
    } catch (const PlanError& error) {
      return error.needed_bytes();
    }
    return std::int64_t{0};
  };
  EXPECT_EQ(refused(0), 3000);
  EXPECT_EQ(refused(kept), 3000 + kept);
  EXPECT_THROW(plan_beside_libraries(kept, []() -> int { throw ConfigError("no grid"); }),
               ConfigError);
}

}  // namespace
}  // namespace garonne::train
