// Pipelines that were planned slower with more bytes once: which schedule was best before some
// micro-batches kept everything decided what was mixed with them.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "train/plans/cluster_costs.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/setup/config_choices.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

struct Case {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t sequence;
  std::int64_t micro_batch;
  int stages;
  std::vector<std::int64_t> budgets;  // ascending
};

TEST(MoreBytes, MakeNoPipelineSlower) {
  const plan::Cluster cluster =
      plan::load_cluster(std::string(GARONNE_SOURCE_DIR) + "/config/clusters/dgx_h100.toml");
  const std::vector<Case> cases = {
      {4, 128, 64, 1, 3, {74526912, 74578336, 74629760, 74732608}},
      {6, 64, 32, 2, 2, {70498432, 70595520, 70692608, 70886784, 70983872}}};
  for (const Case& one : cases) {
    RunConfig config = parse_config("", "a test", {}, config_choices());
    config.model.layers = one.layers;
    config.model.hidden = one.hidden;
    config.model.heads = one.hidden / 32;
    config.model.sequence = one.sequence;
    config.model.vocabulary = 512;
    config.train.micro_batch = one.micro_batch;
    config.train.global_batch = 2 * one.micro_batch;
    config.grid.pipeline = one.stages;
    config.grid.schedule = "1f1b";
    config.evaluation.batches = 0;
    train::Setup whole = make_setup(config, {512, {}, {}}, 1, 0, device_facts(config, cluster));
    apply_cluster(cluster, {}, whole);
    double before = 0;
    for (const std::int64_t budget : one.budgets) {
      const double seconds = plan_grid(whole, budget, &cluster).seconds;
      if (before > 0) {
        EXPECT_LE(seconds, before * (1 + 1e-9)) << budget << " bytes";
      }
      before = seconds;
    }
  }
}

}  // namespace
}  // namespace garonne::train
