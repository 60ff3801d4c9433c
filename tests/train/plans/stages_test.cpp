// Pipelines on real ranks of a model whose values skip stages, against one rank that has it whole.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "base/contains.hpp"
#include "base/error.hpp"
#include "device/cpu_device.hpp"
#include "dist/communication_thread.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "exec/profile/profile.hpp"
#include "exec/token_batch.hpp"
#include "nn/compute_session.hpp"
#include "nn/layers/layers.hpp"
#include "nn/model.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"
#include "train/workload/program_loads.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t vocabulary = 23;
constexpr std::int64_t sequence = 6;
constexpr std::int64_t batch = 2;
constexpr std::int64_t hidden = 12;
constexpr int layers = 6;
constexpr int micro_batches = 8;
constexpr double dropout = 0.2;
const std::vector<StateSpec> states = {{.name = "first_moment"}, {.name = "second_moment"}};

nn::Declaration declaration() {
  nn::Declaration declared;
  declared.precision = Precision::Float64;
  declared.threads = 1;
  return declared;
}

// An embedding, layers, and a head with the table of the embedding. What the embedding makes is
// read by the last layer again, what the second layer makes by the fifth.
nn::Model skipping_model() {
  nn::ModelBuilder builder(declaration());
  const nn::Rows rows{batch, sequence};
  const nn::TensorShape shape = {rows.count(), hidden};
  const int tokens = builder.add_input("tokens", {rows.count()});
  const int targets = builder.add_input("targets", {rows.count()});
  const int table = builder.add_parameter("table", {vocabulary, hidden}, {0.3, 0});
  const int positions = builder.add_parameter("positions", {sequence, hidden}, {0.3, 0});
  const auto add = [&](const std::string& name, int a, int b) {
    return builder.add_node(name, nn::make_dropout_add(name, rows, hidden, dropout), {a, b}, {},
                            shape);
  };
  const int first = builder.add_node(
      "embedding", nn::make_embedding("embedding", rows, hidden, vocabulary, sequence, dropout),
      {tokens}, {table, positions}, shape);
  int x = first;
  int second = -1;
  for (int layer = 0; layer < layers; ++layer) {
    builder.next_block();
    const std::string name = "layer." + std::to_string(layer);
    const int weight = builder.add_parameter(name + ".weight", {hidden, hidden}, {0.4, 0});
    const int bias = builder.add_parameter(name + ".bias", {hidden}, {0.1, 0});
    const int linear = builder.add_node(name + ".linear", nn::make_linear(rows, hidden, hidden),
                                        {x}, {weight, bias}, shape);
    const int gelu =
        builder.add_node(name + ".gelu", nn::make_gelu(rows, hidden), {linear}, {}, shape);
    x = add(name + ".add", x, gelu);
    if (layer == 1) second = x;
    if (layer == 4) x = add("short_skip", x, second);
    if (layer == layers - 1) x = add("long_skip", x, first);
  }
  builder.next_block();
  builder.add_loss("loss", nn::make_loss_head(rows, hidden, vocabulary), {x, targets}, {table});
  nn::Model model = builder.take();
  model.batch = batch;
  model.sequence = sequence;
  return model;
}

plan::NodeSchedule schedule_of(const plan::ModelGraph& graph, const std::string& name) {
  for (const auto& policy : plan::stage_solvers()) {
    if (policy.name == name) return policy.schedules(graph).front();
  }
  throw InternalError("no policy " + name);
}

const plan::CostTable& costs() {
  static plan::CostTable table;
  if (table.rows.empty()) {
    exec::profile_model(Queue(), skipping_model(), declaration(), table, [](int, int) {});
  }
  return table;
}

struct Step {
  exec::StepOutputs outputs;
  std::map<std::string, std::vector<double>> gradients;
  std::vector<std::string> loaded;  // names
};

// One step of `model`, a whole one or a stage; within the predicted bytes.
Step run_step(const nn::Model& model, plan::StepShape step, const std::string& policy, int rank,
              exec::RankResources resources) {
  step.micro_batches = micro_batches;
  step.element_bytes = {8, 0, 8, 8};
  step.optimizer_states = states;
  plan::Program program = plan::make_training_program(
      model.graph, step, plan::same_for_all(schedule_of(model.graph, policy), micro_batches));
  program.rank = rank;
  program.coordinates.pipeline = rank;
  const plan::Prediction prediction = plan::replay(program);
  plan::prove(program, model.graph);
  device::CpuDevice device;
  exec::DeviceTier tier(prediction.peak_bytes);
  exec::ModelState state;
  {
    const exec::DeviceScope scope(tier);
    state =
        exec::initial_state(device.queue(Lane::Compute), model, Precision::Float64, 11, program);
  }
  const nn::Products products = nn::Products::from_json(costs().products);
  const auto optimizer = optim::make_optimizer(RunConfig());
  resources.device = &device;
  resources.tier = &tier;
  resources.state = &state;
  resources.products = &products;
  resources.optimizer = optimizer.get();
  Step result;
  resources.watch_gradient = [&](int parameter, const at::Tensor& gradient) {
    const double* values = gradient.const_data_ptr<double>();
    result.gradients[model.graph.parameters[static_cast<std::size_t>(parameter)].name] = {
        values, values + gradient.numel()};
  };
  exec::StepInputs inputs;
  inputs.seed = 5;
  inputs.loss_scale = 1.0 / micro_batches;
  inputs.learning_rate = 1e-3;
  result.loaded = loaded_names(program, model.graph);
  // Nothing else is there.
  inputs.load = [&](int m) {
    exec::HostBatch loaded = exec::token_batch(m * batch, batch, sequence, vocabulary);
    std::erase_if(loaded.values,
                  [&](const auto& value) { return !contains(result.loaded, value.first); });
    return loaded;
  };
  exec::Executor executor(model, program, resources);
  result.outputs = executor.run(inputs);
  EXPECT_LE(result.outputs.peak_bytes, prediction.peak_bytes);
  EXPECT_GE(static_cast<double>(result.outputs.peak_bytes),
            0.99 * static_cast<double>(prediction.peak_bytes));
  return result;
}

double norm_of(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

class StagesTest : public testing::Test {
 protected:
  StagesTest() : session_(dist::Session::start()), thread_(session_) {
    garonne::test::use_threads(1);
    members_.resize(static_cast<std::size_t>(session_.size()));
    std::iota(members_.begin(), members_.end(), 0);
    all_ = dist::make_transport("mpi", session_, thread_, members_);
    pipeline_ = dist::make_transport("mpi", session_, thread_, members_);
    whole_ = skipping_model();
    plan::apply_costs(costs(), whole_.graph);
    // Blocks are dealt out alike on all ranks, whatever each has measured.
    for (auto& node : whole_.graph.nodes)
      node.forward_keep.seconds = node.backward.seconds = node.backward_weight.seconds = 1;
  }

  void compare(const std::string& name, const std::string& policy) {
    SCOPED_TRACE(name + " " + policy);
    plan::PipelineRequest request;
    request.stages = session_.size();
    request.micro_batches = micro_batches;
    const plan::PipelineSchedule schedule = plan::make_pipeline_schedule(name, request);
    plan::PipelineStage stage = plan::make_pipeline_stage(whole_.graph, schedule, session_.rank());
    const nn::Model model = nn::cut_model(whole_, stage.cut);
    plan::StepShape step;
    step.data_group = {session_.rank()};
    step.world_group = members_;
    step.pipeline = std::move(stage.place);
    step.pipeline.group = members_;
    exec::RankResources resources;
    resources.pipeline = pipeline_.get();
    resources.world = all_.get();
    std::unique_ptr<dist::Transport> tied;
    if (!step.pipeline.tied_group.empty())
      tied = dist::make_transport("mpi", session_, thread_, step.pipeline.tied_group);
    resources.tied = tied.get();
    const Step found = run_step(model, step, policy, session_.rank(), resources);
    const Step wanted = run_step(whole_, plan::StepShape(), policy, 0, exec::RankResources());
    if (name == "1f1b") {
      std::vector<std::string> names;
      if (session_.rank() == 0) names = {"tokens"};
      if (session_.rank() + 1 == session_.size()) names = {"targets"};
      EXPECT_EQ(found.loaded, names);
    }
    EXPECT_NEAR(found.outputs.loss, wanted.outputs.loss, 1e-13);
    EXPECT_NEAR(found.outputs.gradient_norm, wanted.outputs.gradient_norm, 1e-12);
    EXPECT_EQ(found.gradients.size(), model.graph.parameters.size());
    for (const auto& [parameter, gradient] : found.gradients) {
      std::vector<double> difference = gradient;
      const std::vector<double>& reference = wanted.gradients.at(parameter);
      for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= reference[i];
      EXPECT_LE(norm_of(difference), 1e-12 * norm_of(reference)) << parameter;
    }
  }

  dist::Session session_;
  dist::CommunicationThread thread_;
  std::vector<int> members_;
  std::unique_ptr<dist::Transport> all_;
  std::unique_ptr<dist::Transport> pipeline_;
  nn::Model whole_;
};

TEST_F(StagesTest, SkippingValuesComeToTheSameGradients) {
  for (const char* policy : {"keep-all", "full"}) {
    compare("1f1b", policy);
    compare("gpipe", policy);
    compare("zb-v", policy);
    compare("zb-h2", policy);
    if (session_.size() % 2 == 0) compare("chimera", policy);
    if (session_.size() < 4) compare("interleaved", policy);
  }
}

}  // namespace
}  // namespace garonne::train
