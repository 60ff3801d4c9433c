// The shipped run that its node does not hold: what of it is on the disk.
#include <gtest/gtest.h>

#include <string>

#include "base/bytes.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/setup/config_choices.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {
namespace {

TEST(ShippedOnADisk, GptXlFitsANodeThatCannotHoldIt) {
  const std::string path = GARONNE_SOURCE_DIR "/config/gpt2_xl_disk.toml";
  DataFacts facts;
  facts.vocabulary = 50257;
  const train::Setup setup = make_setup(load_config(path, {}, config_choices()), facts, 2);
  const std::int64_t budget = setup.config.memory.budget;
  EXPECT_EQ(budget, std::int64_t{14} << 30);
  const std::int64_t parameters = 4 * setup.model.graph.parameter_elements();
  EXPECT_NEAR(static_cast<double>(parameters), 4 * 1557.7e6, 1e6);
  const GridPlan plan = plan_grid(setup, budget);
  const plan::Prediction& planned = plan.stages[0].prediction;
  EXPECT_LE(planned.peak_bytes, budget);
  EXPECT_GT(planned.of(Tier::Disk).static_bytes, parameters) << "most of the two moments";
  EXPECT_LE(planned.of(Tier::Disk).static_bytes, 2 * round_up(parameters, 1 << 20));
  EXPECT_LT(plan.minimum_budget_bytes, budget);
  EXPECT_LT(plan.minimum_budget_bytes, parameters) << "parameters and gradients move, too";
  // The table of tokens and its gradient are in use at once.
  EXPECT_GT(plan.minimum_budget_bytes, 2 * 4 * std::int64_t{50304} * 1600);
  EXPECT_GT(plan.minimum_on_device_bytes, std::int64_t{20} << 30);
}

}  // namespace
}  // namespace garonne::train
