// The smallest budget of a run against profiles that make its nodes slow and their bytes fewer.
#include "train/plans/smallest_budget.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train::test {
namespace {

RunConfig config_with(const std::string& plan) {
  RunConfig config;
  config.model.layers = 4;
  config.model.hidden = 32;
  config.model.sequence = 64;
  config.memory.plan = plan;
  return config;
}

// As after a profile in which one kind of node took long, and none the scratch memory it declares.
void apply_profile(const std::string& slow_kind, train::Setup& setup) {
  plan::CostTable costs;
  for (const auto& node : setup.model.graph.nodes) {
    plan::CostRow& row = costs.rows[node.cost_key];
    row.forward_seconds = row.forward_keep_seconds = row.backward_seconds =
        row.backward_weight_seconds = node.kind == slow_kind ? 1 : 1e-6;
  }
  apply_costs(costs, setup);
}

template <typename Function>
std::int64_t needed_bytes(const Function& plan) {
  try {
    plan();
  } catch (const PlanError& error) {
    return error.needed_bytes();
  }
  ADD_FAILURE() << "fits";
  return 0;
}

TEST(SmallestBudgetOfRuns, AProfileDoesNotMoveTheSmallestBudget) {
  for (const char* plan : {"auto", "keep-all", "greedy"}) {
    train::Setup setup = make_setup(config_with(plan), {65, {}, {}}, 2);
    const std::int64_t least = smallest_budget(setup);
    for (const char* slow : {"", "attention"}) {
      if (*slow != 0) apply_profile(slow, setup);
      EXPECT_EQ(smallest_budget(setup), least);
      EXPECT_EQ(choose_program(setup, std::int64_t{1} << 40).minimum_budget_bytes, least);
      for (const Effort effort : {Effort::FirstThatFits, Effort::All}) {
        EXPECT_LE(choose_program(setup, least, plan, effort).program.peak_bytes, least);
        EXPECT_EQ(needed_bytes([&] { choose_program(setup, least - 1, plan, effort); }), least);
      }
    }
  }
}

TEST(SmallestBudgetOfRuns, PipelinesTakeTheirSmallestBudgetHoweverSecondsCutThem) {
  RunConfig config = config_with("auto");
  config.grid.data = 2;
  config.grid.pipeline = 2;
  bool cut_otherwise = false;
  for (const int zero : {0, 3}) {
    config.grid.zero = zero;
    const train::Setup whole = make_setup(config, {65, {}, {}}, 2);
    const std::int64_t least = smallest_budget(whole);
    for (const char* slow : {"", "loss_head"}) {
      SCOPED_TRACE(std::to_string(zero) + " " + slow);
      train::Setup profiled = whole;
      if (*slow != 0) apply_profile(slow, profiled);
      EXPECT_EQ(smallest_budget(profiled), least);
      const GridPlan plenty = plan_grid(profiled, std::int64_t{1} << 40);
      EXPECT_EQ(plenty.minimum_budget_bytes, least);
      EXPECT_FALSE(plenty.cut_as_declared);
      const GridPlan grid = plan_grid(profiled, least);
      EXPECT_EQ(grid.minimum_budget_bytes, least);
      for (const auto& stage : grid.stages) EXPECT_LE(stage.prediction.peak_bytes, least);
      EXPECT_EQ(needed_bytes([&] { plan_grid(profiled, least - 1); }), least);
      cut_otherwise = cut_otherwise || grid.cut_as_declared;
    }
  }
  EXPECT_TRUE(cut_otherwise) << "no profile moved the cut to where it does not fit";
}

// A plan need not leave room for a validation that never runs.
TEST(SmallestBudgetOfRuns, DataWithoutAValidationPartLeaveItOut) {
  RunConfig config = config_with("auto");
  DataFacts facts{65, {}, {}};
  EXPECT_GT(make_setup(config, facts, 1).config.evaluation.batches, 0);
  facts.validation_samples = config.train.micro_batch;
  EXPECT_GT(make_setup(config, facts, 1).config.evaluation.batches, 0);
  facts.validation_samples = config.train.micro_batch - 1;
  EXPECT_EQ(make_setup(config, facts, 1).config.evaluation.batches, 0);
}

}  // namespace
}  // namespace garonne::train::test
