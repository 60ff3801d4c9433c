// Plans for GPUs on a machine without one: the run files that are shipped on the cluster file of an
// H200, bytes by the libraries' formulas, and what launches cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/cuda_budget.hpp"
#include "plan/model/model_hash.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/plan_answer.hpp"
#include "train/setup/config_choices.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {
namespace {

const std::string root = GARONNE_SOURCE_DIR;

plan::Cluster h200() {
  return plan::load_cluster(root + "/config/clusters/dgx_h200.toml");
}

RunConfig shipped(const std::string& name) {
  return load_config(root + "/config/" + name + ".toml", {}, config_choices());
}

DataFacts tokens(std::int64_t vocabulary = 50257) {
  DataFacts facts;
  facts.vocabulary = vocabulary;
  return facts;
}

Setup setup_on(const plan::Cluster& cluster, const RunConfig& config, const DataFacts& facts,
               int threads = 1) {
  Setup setup = make_setup(config, facts, threads, 0, cluster.device);
  apply_cluster(cluster, {}, setup);
  return setup;
}

std::int64_t workspace_bytes(const plan::Program& program) {
  std::int64_t bytes = 0;
  for (const plan::Buffer& buffer : program.buffers) {
    if (buffer.kind == plan::BufferKind::Workspace) bytes += buffer.bytes;
  }
  return bytes;
}

struct Planned {
  Setup setup;
  GridPlan grid;
};

// With what holds for every Program of a GPU.
Planned planned(const RunConfig& config, const DataFacts& facts) {
  const plan::Cluster cluster = h200();
  Setup setup = setup_on(cluster, config, facts);
  EXPECT_EQ(config.memory.budget, RunConfig::automatic_budget);
  const std::int64_t budget =
      device::automatic_gpu_budget(cluster.memory_bytes - cluster.reserved_bytes, 1);
  GridPlan grid = plan_grid(setup, budget, &cluster);
  for (const PlannedStage& stage : grid.stages) {
    const plan::Program& program = stage.choice.program;
    EXPECT_LE(stage.prediction.peak_bytes, budget);
    EXPECT_LE(budget, cluster.memory_bytes - cluster.reserved_bytes);
    EXPECT_EQ(program.tier(Tier::Device).granularity, cuda_allocation_granularity);
    for (const plan::Buffer& buffer : program.buffers)
      EXPECT_EQ(buffer.bytes % cuda_allocation_granularity, 0) << buffer.name;
    std::int64_t tables = 0;
    for (const nn::ConstantTable& table :
         nn::constant_tables(setup.model, setup.declaration.precision))
      tables += round_up(table.bytes, cuda_allocation_granularity);
    EXPECT_EQ(tables > 0, config.model.kind != "gpt");
    EXPECT_EQ(workspace_bytes(program), (64 << 20) + tables);
    for (const plan::Instruction& instruction : program.instructions)
      EXPECT_EQ(instruction.transient_bytes % cuda_allocation_granularity, 0)
          << plan::describe(instruction);
  }
  EXPECT_GT(grid.issue_seconds, 0);
  EXPECT_GE(grid.seconds, grid.issue_seconds);
  return {std::move(setup), std::move(grid)};
}

// Of the device's peak in bfloat16, by the count of the literature: 6 operations a parameter and
// token, and 12 · layers · hidden · sequence for attention. Of published runs on H100, whose
// arithmetic is the H200's, llm.c reaches 40 % with 124M and 49 % with 1.5B, LLM.Q up to 60 %. A
// plan has neither their losses nor their kernels: from a fifth below the least to the most of
// them.
void expect_plausible(const RunConfig& config, const Planned& plan) {
  const auto& model = config.model;
  double parameters = 0;
  for (const auto& one : plan.setup.model.graph.parameters)
    parameters += static_cast<double>(one.elements);
  const double tokens =
      static_cast<double>(config.train.global_batch) * static_cast<double>(model.sequence);
  const double of_token = 6 * parameters + 12.0 * static_cast<double>(model.layers) *
                                               static_cast<double>(model.hidden) *
                                               static_cast<double>(model.sequence);
  const double share = tokens * of_token / plan.grid.seconds /
                       static_cast<double>(plan.setup.grid.ranks()) / h200().bfloat16_flops;
  EXPECT_GE(share, 0.8 * 0.40) << tokens / plan.grid.seconds << " tokens a second";
  EXPECT_LE(share, 0.60) << tokens / plan.grid.seconds << " tokens a second";
}

class ShippedGpt : public testing::TestWithParam<std::pair<const char*, double>> {};

TEST_P(ShippedGpt, FitsAnH200AtAPlausibleSpeed) {
  const auto& [name, millions] = GetParam();
  const RunConfig config = shipped(name);
  const Planned plan = planned(config, tokens());
  EXPECT_NEAR(static_cast<double>(plan.setup.model.graph.parameter_elements()) / 1e6, millions,
              0.01 * millions);
  EXPECT_EQ(config.model.vocabulary % 64, 0);
  EXPECT_LT(plan.grid.launch_seconds, 0.01 * plan.grid.seconds) << "hidden, at these sizes";
  expect_plausible(config, plan);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShippedGpt,
                         testing::Values(std::pair{"gpt2_124m", 124.5},
                                         std::pair{"gpt2_355m", 354.9},
                                         std::pair{"gpt2_774m", 774.1},
                                         std::pair{"gpt2_1558m", 1557.7}),
                         [](const auto& test) { return std::string(test.param.first); });

// Nothing is faster than its operations on a device that reaches its peak, or slower than all that
// its lanes and its host do, one after the other. `most_seconds`: of another order of magnitude no
// such step would be of use.
void expect_between_roofs(const RunConfig& config, const Planned& plan, double peak,
                          double most_seconds) {
  double operations = 0;
  for (const auto& node : plan.setup.model.graph.nodes) {
    for (const auto* cost : {&node.forward_keep, &node.backward, &node.backward_weight})
      operations += cost->floating_point_operations;
  }
  EXPECT_GT(plan.grid.seconds,
            operations * static_cast<double>(micro_batches_per_rank(config)) / peak);
  double all = plan.grid.issue_seconds;
  for (const auto& instruction : plan.grid.stages[0].choice.program.instructions)
    all += instruction.seconds;
  EXPECT_LT(plan.grid.seconds, all);
  EXPECT_LT(plan.grid.seconds, most_seconds);
}

TEST(ShippedLlama, FitsAnH200) {
  const RunConfig config = shipped("llama_1b");
  const Planned plan = planned(config, tokens());
  EXPECT_NEAR(static_cast<double>(plan.setup.model.graph.parameter_elements()) / 1e6, 1235.8, 0.1);
  EXPECT_EQ(config.model.vocabulary % 64, 0);
  expect_between_roofs(config, plan, h200().bfloat16_flops, 10);
}

DataFacts fields_of(std::int64_t channels, const std::vector<std::int64_t>& points,
                    const std::string& grid) {
  DataFacts facts;
  facts.fields.input_channels = facts.fields.target_channels = channels;
  facts.fields.points = points;
  facts.fields.grid = grid;
  return facts;
}

TEST(ShippedOperators, AFourierOperatorFitsAnH200) {
  const RunConfig config = shipped("navier_stokes_fno");
  const DataFacts facts = fields_of(1, {128, 128}, "periodic");
  expect_between_roofs(config, planned(config, facts), h200().float32_flops, 0.1);
}

TEST(ShippedOperators, ASphericalOperatorFitsAnH200) {
  const RunConfig config = shipped("era5_sfno");
  const DataFacts facts = fields_of(73, {721, 1440}, "equiangular");
  const Planned plan = planned(config, facts);
  expect_between_roofs(config, plan, h200().bfloat16_flops, 1);
  // Products in place of a fast transform. There and back of 384 channels: 3 transforms on the grid
  // of the data, of which one brings the skip of the last layer there, and 15 on the inner one;
  // eight matrices for each row, of half of the orders, along a quarter of the circle and over half
  // of the degrees.
  const double outer = 361.0 * 8 * 120 * (361 + 120);
  const double inner = 120.0 * 8 * 120 * (121 + 120);
  double transforms = 0;
  for (const auto& node : plan.setup.model.graph.nodes) {
    if (node.kind != "sphere_analysis" && node.kind != "sphere_synthesis") continue;
    transforms +=
        node.forward_keep.floating_point_operations + node.backward.floating_point_operations;
  }
  EXPECT_NEAR(transforms, 2 * 384 * (6 * outer + 30 * inner), 1e-3 * transforms);
}

TEST(ShippedOperators, AnAdaptiveOperatorFitsAnH200) {
  const RunConfig config = shipped("era5_afno");
  const DataFacts facts = fields_of(20, {720, 1440}, "equiangular");
  const Planned plan = planned(config, facts);
  expect_between_roofs(config, plan, h200().bfloat16_flops, 0.1);
  // A layer: two norms, spectral weights of 8 blocks (real and imaginary, there and back, with
  // their biases), an MLP of four times the width. Patches with their places in front, the head
  // behind.
  const std::int64_t width = 768, patch = 8 * 8, channels = 20, places = 90 * 180;
  const std::int64_t layer = 4 * width + 2 * 2 * (width * width / 8 + width) +
                             (4 * width * width + 4 * width) + (4 * width * width + width);
  const std::int64_t whole =
      12 * layer + (patch * channels * width + width) + places * width + width * patch * channels;
  EXPECT_EQ(plan.setup.model.graph.parameter_elements(), whole);
}

RunConfig small_gpt() {
  RunConfig config;
  config.model.layers = 4;
  config.model.hidden = 128;
  config.model.heads = 4;
  config.model.sequence = 128;
  config.train.micro_batch = config.train.global_batch = 4;
  config.train.precision = "bfloat16";
  config.evaluation.batches = 0;
  return config;
}

TEST(GpuPlans, AttentionTakesWhatItsFormulaSays) {
  RunConfig config = shipped("gpt2_124m");
  config.train.micro_batch = 8;
  const train::Setup setup = setup_on(h200(), config, tokens());
  const auto& nodes = setup.model.graph.nodes;
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [](const auto& node) { return node.kind == "attention"; });
  ASSERT_NE(found, nodes.end());
  constexpr std::int64_t mebibyte = 1 << 20;
  const std::int64_t row_sums = 4 * 8 * 12 * 1024;
  EXPECT_EQ(found->private_slot_bytes, std::vector<std::int64_t>{row_sums});
  EXPECT_EQ(found->forward_keep.transient_bytes, 3 * 512);
  EXPECT_EQ(found->forward.transient_bytes, 3 * 512 + row_sums);
  // Three gradients of 12 MiB; the 48.4 MiB of sums beside them are more than the 36 of what they
  // are put together in.
  EXPECT_EQ(found->backward.transient_bytes,
            36 * mebibyte + (48 * mebibyte + row_sums + 3 * 512) - 36 * mebibyte);
}

TEST(GpuPlans, AreTheSameOnEveryLoginNode) {
  const plan::Cluster cluster = h200();
  const auto hash = [&](int threads) {
    const train::Setup setup = setup_on(cluster, small_gpt(), tokens(256), threads);
    return plan::program_hash(
        plan_grid(setup, std::int64_t{1} << 30, &cluster).stages[0].choice.program);
  };
  EXPECT_EQ(hash(1), hash(64));
}

std::string text_of(const Setup& setup, const GridPlan& grid, const plan::Cluster& cluster) {
  PlanAnswer answer{setup, grid, std::int64_t{1} << 30};
  answer.costs = CostSource::Cluster;
  answer.cluster = &cluster;
  const nlohmann::ordered_json json = to_json(answer);
  return format_plan(answer) + json.dump();
}

TEST(GpuPlans, SayWhatLaunchesCost) {
  const plan::Cluster cluster = h200();
  const train::Setup setup = setup_on(cluster, small_gpt(), tokens(256));
  const GridPlan grid = plan_grid(setup, std::int64_t{1} << 30, &cluster);
  EXPECT_GT(grid.launch_seconds, 0.3 * grid.seconds);
  EXPECT_NEAR(grid.seconds, grid.issue_seconds, 0.05 * grid.seconds);
  const std::string text = text_of(setup, grid, cluster);
  EXPECT_NE(text.find("bound by launches, "), std::string::npos) << text;
  EXPECT_NE(text.find("\"launch_seconds\""), std::string::npos);
  EXPECT_NE(text.find("\n  libraries"), std::string::npos) << text;
}

// Of what its pieces are pinned for, the device has nothing.
TEST(GpuPlans, ADiskBelowTakesNothingOfTheDevice) {
  const plan::Cluster cluster = h200();
  RunConfig config = small_gpt();
  config.model.hidden = 1024;
  const auto planned_with = [&](std::int64_t budget) {
    return plan_grid(setup_on(cluster, config, tokens(256)), budget, &cluster);
  };
  const GridPlan whole = planned_with(std::int64_t{1} << 40);
  config.memory.disk = "/on/its/nodes";
  config.memory.plan = "zero-infinity";
  const GridPlan least = planned_with(std::int64_t{1} << 40);
  const GridPlan below = planned_with(least.minimum_budget_bytes);
  const plan::Program& program = below.stages[0].choice.program;
  EXPECT_LT(below.minimum_budget_bytes, whole.minimum_budget_bytes / 2);
  EXPECT_LE(below.stages[0].prediction.peak_bytes, least.minimum_budget_bytes);
  EXPECT_EQ(workspace_bytes(program), workspace_bytes(whole.stages[0].choice.program));
  EXPECT_GT(below.stages[0].prediction.of(Tier::Disk).static_bytes, 0);
  EXPECT_EQ(below.stages[0].prediction.host.peak_bytes, 0);
  const auto of_disk = [](const plan::Instruction& one) {
    return one.operation == plan::Operation::DiskRead;
  };
  EXPECT_TRUE(std::ranges::any_of(program.instructions, of_disk));
  EXPECT_THROW(planned_with(least.minimum_budget_bytes - 1), PlanError);
}

// Costs and Programs of one rounding of products are not the other's; what TF32 multiplies takes
// less of the device.
TEST(GpuPlans, RoundedProductsHaveCostsAndProgramsOfTheirOwn) {
  const plan::Cluster cluster = h200();
  RunConfig config = small_gpt();
  config.train.precision = "float32";
  config.model.hidden = 1024;  // below, kernels take their least
  const train::Setup exact = setup_on(cluster, config, tokens(256));
  config.train.products = "tf32";
  const train::Setup rounded = setup_on(cluster, config, tokens(256));
  EXPECT_NE(plan::model_hash(exact.model.graph), plan::model_hash(rounded.model.graph));
  const auto& nodes = exact.model.graph.nodes;
  ASSERT_EQ(nodes.size(), rounded.model.graph.nodes.size());
  bool faster = false;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const plan::NodeSpec& other = rounded.model.graph.nodes[n];
    if (nodes[n].communicates()) continue;
    EXPECT_EQ(other.cost_key, nodes[n].cost_key + " tf32");
    EXPECT_LE(other.forward.seconds, nodes[n].forward.seconds) << other.name;
    faster = faster || other.forward.seconds < nodes[n].forward.seconds;
  }
  EXPECT_TRUE(faster);
  const std::int64_t budget = std::int64_t{1} << 30;
  const GridPlan plan = plan_grid(rounded, budget, &cluster);
  EXPECT_EQ(plan.stages[0].prediction.peak_bytes,
            plan_grid(exact, budget, &cluster).stages[0].prediction.peak_bytes);
  EXPECT_NE(text_of(rounded, plan, cluster).find("float32, products in TF32"), std::string::npos);
}

TEST(GpuPlans, RoundedProductsAreForFloat32OnGpus) {
  RunConfig config = small_gpt();
  config.train.products = "tf32";
  for (const char* precision : {"float64", "bfloat16"}) {
    config.train.precision = precision;
    EXPECT_THROW(setup_on(h200(), config, tokens(256)), ConfigError) << precision;
  }
  config.train.precision = "float32";
  EXPECT_NO_THROW(setup_on(h200(), config, tokens(256)));
  EXPECT_THROW(make_setup(config, tokens(256), 1, 0, plan::DeviceFacts()), ConfigError);
}

// Files of version 1 have no devices that somebody else gives work: nothing is said of launches,
// and bytes are a processor's.
TEST(GpuPlans, AFileOfVersionOneKnowsNoLaunches) {
  const plan::Cluster cluster = plan::load_cluster(root + "/config/clusters/frontier.toml");
  const train::Setup setup = setup_on(cluster, small_gpt(), tokens(256));
  const GridPlan grid = plan_grid(setup, std::int64_t{1} << 30, &cluster);
  EXPECT_EQ(grid.issue_seconds, 0);
  EXPECT_EQ(grid.launch_seconds, 0);
  const std::string text = text_of(setup, grid, cluster);
  EXPECT_EQ(text.find("launch"), std::string::npos) << text;
  EXPECT_EQ(text.find("libraries"), std::string::npos) << text;
  const std::string program = plan::to_json(grid.stages[0].choice.program, {0}, {}).dump();
  EXPECT_EQ(program.find("issue_seconds"), std::string::npos);
  EXPECT_EQ(program.find("workspace"), std::string::npos);
  EXPECT_EQ(program.find("granularity"), std::string::npos);
}

}  // namespace
}  // namespace garonne::train
