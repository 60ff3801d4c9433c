// A small GPT cut over the tensor axis, beside the same model on one rank: losses, gradients,
// bytes. In float64 with dropout, vocabularies that do not divide among them.
#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "device/cpu_device.hpp"
#include "device/emulated_device.hpp"
#include "dist/session.hpp"
#include "exec/exchange_device.hpp"
#include "exec/executor.hpp"
#include "exec/host_access.hpp"
#include "exec/profile/profile.hpp"
#include "exec/token_batch.hpp"
#include "nn/compute_session.hpp"
#include "nn/gpt/gpt.hpp"
#include "plan/model/cost_table.hpp"
#include "plan/program/exchange_lane.hpp"
#include "plan/program/pass_parts.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::int64_t batch = 2;
constexpr int micro_batches = 2;

struct Setting {
  Precision precision = Precision::Float64;
  bool sequence_parallel = false;
  std::string plan = "keep-all";
  std::int64_t vocabulary = 61;
  double dropout = 0.2;
  // What puts collectives of nodes beside compute; on a device whose lanes are late, or on the CPU.
  plan::Program (*beside_compute)(plan::Program) = nullptr;
  bool late = true;

  nn::GptSizes sizes() const { return {2, 32, 4, 24, vocabulary, dropout}; }
};

// One rank of a group, alone in it where there is no transport.
class Rank {
 public:
  Rank(const Setting& setting, dist::Session& session, dist::Transport* transport)
      : setting_(setting), transport_(transport), group_(transport ? transport->size() : 1) {
    nn::Declaration declaration;
    declaration.precision = setting.precision;
    nn::GptPart part;
    part.tensor = transport ? transport->member() : 0;
    part.tensor_ranks = group_;
    part.sequence_parallel = setting.sequence_parallel;
    model_ = nn::make_gpt(setting.sizes(), batch, declaration, part);
    profile(session, declaration);
    plan::StepShape step;
    step.micro_batches = micro_batches;
    step.element_bytes.parameter = compute_bytes(setting.precision);
    step.element_bytes.master = has_master(setting.precision) ? state_bytes(setting.precision) : 0;
    step.element_bytes.gradient = step.element_bytes.state = state_bytes(setting.precision);
    RunConfig config;
    config.optimizer.weight_decay = 0.1;
    optimizer_ = optim::make_optimizer(config);
    step.optimizer_states = optimizer_->states();
    step.data_group = {0};
    step.tensor_group.resize(static_cast<std::size_t>(group_));
    std::iota(step.tensor_group.begin(), step.tensor_group.end(), 0);
    step.world_group = step.tensor_group;
    step.tensor_bucket_bytes = 1 << 20;
    plan::NodeSchedule schedule;
    for (const auto& policy : plan::stage_solvers()) {
      if (policy.name != setting.plan) continue;
      const auto family = policy.schedules(model_.graph);
      schedule = family[family.size() / 2];
    }
    program_ = plan::make_training_program(model_.graph, step,
                                           plan::same_for_all(schedule, micro_batches));
    evaluation_ = plan::make_forward_program(model_.graph, step, model_.graph.loss);
    std::vector<plan::Program> programs(static_cast<std::size_t>(group_), program_);
    prediction_ = plan::replay_together(programs)[0];
    program_ = plan::program_of_rank(
        std::move(program_), model_.graph,
        {part.tensor, {0, 0, part.tensor}, step.data_group, step.tensor_group, {}, {}});
    std::unique_ptr<device::Device> carrier = std::make_unique<device::CpuDevice>();
    if (setting.beside_compute) {
      program_ = setting.beside_compute(std::move(program_));
      EXPECT_EQ(plan::replay(program_).peak_bytes, prediction_.peak_bytes);
      plan::prove(program_, model_.graph);
    }
    if (setting.beside_compute && setting.late) {
      carrier = std::make_unique<device::EmulatedDevice>(device::EmulatedSettings{
          .delay_seed = 17 + part.tensor, .longest_hold_seconds = 0.02, .compute_thread = true});
    }
    device_ = std::make_unique<ExchangeDevice>(std::move(carrier));
    tier_ = std::make_unique<DeviceTier>(no_limit, device_->kind());
    const DeviceScope scope(*tier_);
    state_ =
        initial_state(device_->queue(Lane::Compute), model_, setting.precision, 11,
                      std::vector<StateSpec>{{.name = "first_moment"}, {.name = "second_moment"}});
  }

  StepOutputs step(std::int64_t number, const plan::Program& program, bool training) {
    Machine machine;
    machine.device = device_.get();
    machine.tier = tier_.get();
    machine.state = &state_;
    machine.products = &products_;
    machine.optimizer = optimizer_.get();
    machine.tensor = machine.world = transport_;
    gradients_.assign(model_.graph.parameters.size(), at::Tensor());
    machine.watch_gradient = [this](int parameter, const at::Tensor& gradient) {
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
      return token_batch((number * micro_batches + micro_batch) * batch, batch,
                         setting_.sizes().sequence, setting_.vocabulary);
    };
    Executor executor(model_, program, machine);
    return executor.run(inputs);
  }
  StepOutputs step(std::int64_t number) { return step(number, program_, true); }
  double evaluate() { return step(1, evaluation_, false).report.at(0); }

  const nn::Model& model() const { return model_; }
  const ModelState& state() const { return state_; }
  const plan::Program& program() const { return program_; }
  const plan::Prediction& prediction() const { return prediction_; }
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  // Pieces of work that its device was given for the lane.
  std::uint64_t works_on(Lane lane) { return device_->mark(lane).number; }

 private:
  // What the first rank measured, so that all know the same; products are the default library's.
  void profile(dist::Session& session, const nn::Declaration& declaration) {
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
    products_ = nn::Products::from_json(table.products);
  }

  Setting setting_;
  dist::Transport* transport_;
  int group_;
  nn::Model model_;
  nn::Products products_;
  plan::Program program_;
  plan::Program evaluation_;
  plan::Prediction prediction_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<DeviceTier> tier_;
  ModelState state_;
  std::vector<at::Tensor> gradients_;
  std::map<std::size_t, std::vector<double>> gradient_values_;  // what they point to
};

// The largest difference between what is held of a tensor and the same elements of the whole one,
// over the norm of the whole.
double difference(const nn::Box& box, const at::Tensor& mine, const at::Tensor& whole) {
  const auto* a = mine.const_data_ptr<double>();
  const auto* b = whole.const_data_ptr<double>();
  double squares = 0;
  for (const nn::Run& run : nn::runs_of(box)) {
    for (std::int64_t i = 0; i < run.elements; ++i)
      squares += std::pow(a[run.in_box + i] - b[run.in_global + i], 2);
  }
  for (std::int64_t i = box.elements(); i < mine.numel(); ++i) EXPECT_EQ(a[i], 0) << "padding";
  const double norm = whole.norm().item<double>();
  return norm > 0 ? std::sqrt(squares) / norm : std::sqrt(squares);
}

class TensorAxis : public testing::Test {
 protected:
  TensorAxis() : session_(dist::Session::start()), thread_(session_) {
    garonne::test::use_threads(1);
    std::vector<int> members(static_cast<std::size_t>(session_.size()));
    std::iota(members.begin(), members.end(), 0);
    if (session_.size() > 1) transport_ = dist::make_transport("mpi", session_, thread_, members);
  }

  void compare(const Setting& setting) {
    SCOPED_TRACE(setting.plan + (setting.sequence_parallel ? ", sequence parallel" : ""));
    Setting whole_setting = setting;
    whole_setting.sequence_parallel = false;
    Rank whole(whole_setting, session_, nullptr);
    Rank mine(setting, session_, transport_.get());
    const auto& parameters = mine.model().graph.parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      EXPECT_EQ(0, difference(mine.model().boxes[p], mine.state().parameters[p].parameter.flatten(),
                              whole.state().parameters[p].parameter.flatten()))
          << parameters[p].name;
    }
    EXPECT_NEAR(mine.evaluate(), whole.evaluate(), 1e-12);
    for (std::int64_t number = 1; number <= 10; ++number) {
      const StepOutputs there = whole.step(number);
      const StepOutputs here = mine.step(number);
      EXPECT_NEAR(here.loss, there.loss, 1e-9 * there.loss) << "step " << number;
      EXPECT_NEAR(here.gradient_norm, there.gradient_norm, 1e-9 * there.gradient_norm);
      const double planned = static_cast<double>(mine.prediction().peak_bytes);
      EXPECT_LE(here.peak_bytes, mine.prediction().peak_bytes);
      EXPECT_GE(static_cast<double>(here.peak_bytes), 0.99 * planned);
      if (number > 1) continue;
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        EXPECT_LT(difference(mine.model().boxes[p], mine.gradients()[p], whole.gradients()[p]),
                  1e-12)
            << parameters[p].name;
      }
    }
  }

  // Steps of the Rank with collectives of nodes beside compute and without. Returns the former.
  std::unique_ptr<Rank> expect_same_bits(Setting setting) {
    SCOPED_TRACE(precision_name(setting.precision));
    auto beside = std::make_unique<Rank>(setting, session_, transport_.get());
    setting.beside_compute = nullptr;
    Rank blocking(setting, session_, transport_.get());
    for (std::int64_t number = 1; number <= 3; ++number) {
      const StepOutputs wanted = blocking.step(number);
      const StepOutputs found = beside->step(number);
      EXPECT_EQ(found.loss, wanted.loss);
      EXPECT_EQ(found.gradient_norm, wanted.gradient_norm);
      EXPECT_EQ(found.peak_bytes, wanted.peak_bytes);
    }
    for (std::size_t p = 0; p < beside->state().parameters.size(); ++p) {
      EXPECT_TRUE(at::equal(beside->state().parameters[p].trained(),
                            blocking.state().parameters[p].trained()));
    }
    return beside;
  }

  dist::Session session_;
  dist::CommunicationThread thread_;
  std::unique_ptr<dist::Transport> transport_;
};

TEST_F(TensorAxis, TrainsAsOneRankDoes) {
  for (const bool sequence_parallel : {false, true}) {
    for (const char* plan : {"keep-all", "full", "selective"})
      compare({Precision::Float64, sequence_parallel, plan});
  }
}

TEST_F(TensorAxis, VocabularyWithoutARowForTheLastRank) {
  for (const bool sequence_parallel : {false, true})
    compare({Precision::Float64, sequence_parallel, "keep-all", session_.size() + 1});
}

TEST_F(TensorAxis, WithoutDropout) {
  for (const bool sequence_parallel : {false, true})
    compare({Precision::Float64, sequence_parallel, "keep-all", 64, 0});
}

// Loosely: their sums round otherwise. Bytes are exact.
TEST_F(TensorAxis, OtherPrecisions) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(precision_name(precision));
      Rank whole({precision, false}, session_, nullptr);
      Rank mine({precision, sequence_parallel}, session_, transport_.get());
      const double tolerance = precision == Precision::Float32 ? 1e-4 : 3e-2;
      for (std::int64_t number = 1; number <= 5; ++number) {
        const StepOutputs here = mine.step(number);
        EXPECT_NEAR(here.loss, whole.step(number).loss, tolerance);
        for (std::size_t i = 0; i < here.measurements.size(); ++i) {
          ASSERT_LE(here.measurements[i].peak_bytes, mine.prediction().during_bytes[i])
              << plan::describe(mine.program().instructions[i]);
        }
        EXPECT_GE(static_cast<double>(here.peak_bytes),
                  0.99 * static_cast<double>(mine.prediction().peak_bytes));
      }
    }
  }
}

// Waited for where the pass is finished, they are the same sums.
TEST_F(TensorAxis, CollectivesBesideComputeChangeNoBit) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const char* plan : {"keep-all", "full"}) {
        Setting setting{precision, sequence_parallel, plan};
        setting.beside_compute = plan::test::with_passes_beside_compute;
        expect_same_bits(setting);
      }
    }
  }
}

// And so are they on a lane that the product does not have, whatever carries it. Where sequences are
// cut, a sum of gradients is under way on its own lane when the last of them begins.
TEST_F(TensorAxis, AnotherLaneChangesNoBit) {
  for (const bool sequence_parallel : {false, true}) {
    for (const bool late : {false, true}) {
      Setting setting{Precision::Float32, sequence_parallel, "full"};
      setting.beside_compute = plan::test::with_exchange_lane;
      setting.late = late;
      const std::unique_ptr<Rank> beside = expect_same_bits(setting);
      std::uint64_t exchanges = 0;
      for (const plan::Instruction& instruction : beside->program().instructions)
        exchanges += instruction.lane == plan::test::exchange_lane;
      EXPECT_GT(exchanges, 20U);
      // The CPU does where it stands what is put on lanes elsewhere.
      EXPECT_EQ(beside->works_on(plan::test::exchange_lane), late ? 3 * exchanges : 0);
    }
  }
}

TEST_F(TensorAxis, RefusesACutThatDoesNotDivide) {
  nn::GptSizes sizes{1, 30, 6, 10, 20, 0};
  nn::GptPart part;
  part.tensor_ranks = 4;
  try {
    nn::make_gpt(sizes, 1, nn::Declaration(), part);
    FAIL() << "six heads over four ranks";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("grid.tensor"), std::string::npos) << text;
    EXPECT_NE(text.find("3 and 6"), std::string::npos) << text;
  }
  part.tensor_ranks = 3;
  part.sequence_parallel = true;
  EXPECT_THROW(nn::make_gpt(sizes, 1, nn::Declaration(), part), ConfigError);
  EXPECT_NO_THROW(nn::make_gpt(sizes, 3, nn::Declaration(), part));
}

}  // namespace
}  // namespace garonne::exec
