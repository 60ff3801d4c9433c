#include "exec/tensor_ranks.hpp"

#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "device/cpu_device.hpp"
#include "exec/host_access.hpp"
#include "exec/profile/profile.hpp"
#include "nn/compute_session.hpp"
#include "plan/model/cost_table.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::exec {
namespace {

constexpr int micro_batches = 2;

plan::StepShape step_of(Precision precision, const optim::Optimizer& optimizer, int ranks) {
  plan::StepShape step;
  step.micro_batches = micro_batches;
  step.element_bytes.parameter = compute_bytes(precision);
  step.element_bytes.master = has_master(precision) ? state_bytes(precision) : 0;
  step.element_bytes.gradient = step.element_bytes.state = state_bytes(precision);
  step.optimizer_states = optimizer.states();
  step.tensor_sums = optimizer.sums();
  step.data_group = {0};
  step.tensor_group.resize(static_cast<std::size_t>(ranks));
  std::iota(step.tensor_group.begin(), step.tensor_group.end(), 0);
  step.world_group = step.tensor_group;
  step.tensor_bucket_bytes = 1 << 20;
  return step;
}

// The middle one of the policy's family.
plan::NodeSchedule schedule_of(const plan::ModelGraph& graph, const std::string& name) {
  for (const auto& policy : plan::stage_solvers()) {
    if (policy.name != name) continue;
    const auto family = policy.schedules(graph);
    return family[family.size() / 2];
  }
  throw std::out_of_range("no policy " + name);
}

double norm_of_all(const std::vector<at::Tensor>& tensors) {
  double squares = 0;
  for (const auto& tensor : tensors) squares += std::pow(tensor.norm().item<double>(), 2);
  return std::sqrt(squares);
}

// The norm of the difference between what is held of a tensor and the same elements of the whole.
double difference(const nn::Box& box, const at::Tensor& mine, const at::Tensor& whole) {
  const auto* a = mine.const_data_ptr<double>();
  const auto* b = whole.const_data_ptr<double>();
  double squares = 0;
  for (const nn::Run& run : nn::runs_of(box)) {
    for (std::int64_t i = 0; i < run.elements; ++i)
      squares += std::pow(a[run.in_box + i] - b[run.in_global + i], 2);
  }
  for (std::int64_t i = box.elements(); i < mine.numel(); ++i) EXPECT_EQ(a[i], 0) << "padding";
  return std::sqrt(squares);
}

}  // namespace

TensorRank::TensorRank(const CutModel& cut, dist::Session& session, dist::Transport* transport)
    : cut_(cut), transport_(transport) {
  const int ranks = transport ? transport->size() : 1;
  const int member = transport ? transport->member() : 0;
  nn::Declaration declaration;
  declaration.precision = cut.precision;
  model_ = cut.make(declaration, member, ranks);
  profile(session, declaration);
  RunConfig config;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.name = cut.optimizer;
  // A rate that learns in a few steps.
  if (cut.optimizer == "lars") config.optimizer.trust_coefficient = 1;
  optimizer_ = optim::make_optimizer(config);
  plan::StepShape step = step_of(cut.precision, *optimizer_, ranks);
  if (cut.sums_again) {
    step.data_group = step.tensor_group;
    step.tensor_bucket_bytes = 0;  // each gradient by itself
  }
  program_ = plan::make_training_program(
      model_.graph, step, plan::same_for_all(schedule_of(model_.graph, cut.plan), micro_batches));
  evaluation_ = plan::make_forward_program(model_.graph, step, model_.graph.loss);
  std::vector<plan::Program> programs(static_cast<std::size_t>(ranks), program_);
  prediction_ = plan::replay_together(programs)[0];
  program_ =
      plan::program_of_rank(std::move(program_), model_.graph,
                            {member, {0, 0, member}, step.data_group, step.tensor_group, {}, {}});
  plan::prove(program_, model_.graph);
  if (!cut.sums_again) plan::check_rank_sums(program_, {1, 1, ranks});
  plan::replay(evaluation_);
  plan::prove(evaluation_, model_.graph);
  if (cut.beside_compute) {
    program_ = cut.beside_compute(std::move(program_));
    EXPECT_EQ(plan::replay(program_).peak_bytes, prediction_.peak_bytes);
    plan::prove(program_, model_.graph);
  }
  device_ = cut.device ? cut.device(member) : std::make_unique<device::CpuDevice>();
  tier_ =
      std::make_unique<DeviceTier>(std::numeric_limits<std::int64_t>::max() / 2, device_->kind());
  const DeviceScope scope(*tier_);
  state_ =
      initial_state(device_->queue(Lane::Compute), model_, cut.precision, 11, optimizer_->states());
}

StepOutputs TensorRank::step(std::int64_t number, const plan::Program& program, bool training) {
  RankResources resources;
  resources.device = device_.get();
  resources.tier = tier_.get();
  resources.state = &state_;
  resources.products = &products_;
  resources.optimizer = optimizer_.get();
  resources.tensor = resources.world = transport_;
  if (cut_.sums_again) resources.data = transport_;
  gradients_.assign(model_.graph.parameters.size(), at::Tensor());
  resources.watch_gradient = [this](int parameter, const at::Tensor& gradient) {
    // The copy is the test's and not the step's: its bytes lie outside the tier.
    std::vector<double>& values = gradient_values_[static_cast<std::size_t>(parameter)];
    values = copy_out(gradient);
    gradients_[static_cast<std::size_t>(parameter)] =
        at::from_blob(values.data(), {gradient.numel()}, at::kDouble);
  };
  StepInputs inputs;
  inputs.seed = 5;
  inputs.step = number;
  inputs.training = training;
  inputs.loss_scale = 1.0 / micro_batches;
  inputs.learning_rate = 1e-2;
  inputs.clip_norm = 0.5;
  inputs.load = [&](int micro_batch) {
    return cut_.load(model_, number * micro_batches + micro_batch);
  };
  Executor executor(model_, program, resources);
  return executor.run(inputs);
}

// What the first rank measured, so that all know the same. Not the libraries of products, which
// would be others whenever the machine is busy, and with them the last bits.
void TensorRank::profile(dist::Session& session, const nn::Declaration& declaration) {
  std::string text;
  if (transport_ == nullptr) return;
  if (session.rank() == 0) {
    plan::CostTable table;
    profile_model(device::CpuDevice().queue(Lane::Compute), model_, declaration, table,
                  [](int, int) {});
    text = plan::to_json(table).dump();
  }
  text = session.broadcast(text);
  const auto table = plan::cost_table_from_json(nlohmann::json::parse(text), "rank 0");
  EXPECT_TRUE(plan::apply_costs(table, model_.graph));
}

TensorRanks::TensorRanks() : session_(dist::Session::start()), thread_(session_) {
  garonne::test::use_threads(1);
  std::vector<int> members(static_cast<std::size_t>(session_.size()));
  std::iota(members.begin(), members.end(), 0);
  if (session_.size() > 1) transport_ = dist::make_transport("mpi", session_, thread_, members);
}

void TensorRanks::compare(const CutModel& cut, double rounding) {
  SCOPED_TRACE(cut.name + ", " + cut.plan);
  TensorRank whole(cut, session_, nullptr);
  TensorRank mine(cut, session_, transport_.get());
  const auto& parameters = mine.model().graph.parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    EXPECT_EQ(0, difference(mine.model().boxes[p], mine.state().parameter(p).parameter.flatten(),
                            whole.state().parameter(p).parameter.flatten()))
        << parameters[p].name;
  }
  EXPECT_NEAR(mine.evaluate(), whole.evaluate(), 1e-12);
  for (std::int64_t number = 1; number <= 10; ++number) {
    const StepOutputs there = whole.step(number);
    const StepOutputs here = mine.step(number);
    EXPECT_NEAR(here.loss, there.loss, 1e-9 * there.loss) << "step " << number;
    EXPECT_NEAR(here.gradient_norm, there.gradient_norm, 1e-9 * there.gradient_norm);
    check_bytes(mine, here);
    if (number > 1) continue;
    const double of_all = norm_of_all(whole.gradients());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const at::Tensor& wanted = whole.gradients()[p];
      EXPECT_LE(difference(mine.model().boxes[p], mine.gradients()[p], wanted),
                std::max(1e-12 * wanted.norm().item<double>(), rounding * of_all))
          << parameters[p].name;
    }
  }
}

void TensorRanks::compare_loosely(const CutModel& cut, double tolerance) {
  SCOPED_TRACE(cut.name + " " + precision_name(cut.precision));
  TensorRank whole(cut, session_, nullptr);
  TensorRank mine(cut, session_, transport_.get());
  for (std::int64_t number = 1; number <= 5; ++number) {
    const StepOutputs here = mine.step(number);
    const double there = whole.step(number).loss;
    EXPECT_NEAR(here.loss, there, tolerance * there);
    check_bytes(mine, here);
  }
}

void TensorRanks::check_bytes(const TensorRank& rank, const StepOutputs& outputs) {
  for (std::size_t i = 0; i < outputs.measurements.size(); ++i) {
    ASSERT_LE(outputs.measurements[i].peak_bytes, rank.prediction().during_bytes[i])
        << plan::describe(rank.program().instructions[i]);
  }
  EXPECT_GE(static_cast<double>(outputs.peak_bytes),
            0.99 * static_cast<double>(rank.prediction().peak_bytes));
}

}  // namespace garonne::exec
