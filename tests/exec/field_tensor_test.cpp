// Models of fields cut over the tensor axis, beside the same models on one rank: weights, losses,
// gradients, bytes. Rows and modes are odd, so that ranks have slots without a row.
#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/sphere_grid.hpp"
#include "device/cpu_device.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "exec/host_access.hpp"
#include "exec/profile/profile.hpp"
#include "nn/compute_session.hpp"
#include "nn/fields/field_model.hpp"
#include "plan/model/cost_table.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t batch = 2;
constexpr int micro_batches = 2;

struct Setting {
  std::string name;
  RunConfig::Model keys;
  std::string loss = "relative-l2";
  nn::FieldShape shape;
  Precision precision = Precision::Float64;
  std::string plan = "keep-all";
};

Setting flat(const std::string& name, std::vector<std::int64_t> points) {
  Setting setting;
  setting.name = name;
  setting.keys.kind = "fno";
  setting.keys.layers = 2;
  setting.keys.hidden = 8;
  setting.keys.modes = {5, 6};
  setting.shape.input_channels = 2;
  setting.shape.target_channels = 1;
  setting.shape.points = std::move(points);
  return setting;
}

Setting sphere(const std::string& name, const std::string& grid, std::int64_t rows,
               std::int64_t columns) {
  Setting setting;
  setting.name = name;
  setting.keys.kind = "sfno";
  setting.keys.layers = 3;
  setting.keys.hidden = 6;
  setting.keys.scale_factor = 2;
  setting.loss = "area-l2";
  setting.shape.input_channels = 3;
  setting.shape.target_channels = 2;
  setting.shape.points = {rows, columns};
  setting.shape.grid = grid;
  setting.shape.area_weights =
      mean_one_weights(make_sphere_grid(sphere_grid_kind("grid", grid), rows, columns));
  return setting;
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  all.push_back(flat("neuralop", {13, 10}));

  Setting decoded = flat("decoded by point, losses by channel", {11, 9});
  decoded.loss = "relative-l2-channels";
  decoded.shape.target_channels = 2;
  for (std::int64_t i = 0; i < 2 * 99; ++i) {
    decoded.shape.target_mean.push_back(0.01 * static_cast<double>(i % 17));
    decoded.shape.target_deviation.push_back(1 + 0.1 * static_cast<double>(i % 7));
  }
  all.push_back(decoded);

  Setting gaps = flat("missing values, noise, after a step without gradients", {11, 8});
  gaps.shape.masked = true;
  gaps.shape.noise = 0.1;
  gaps.shape.push_forward = 1;
  gaps.shape.rollout = 2;
  gaps.loss = "area-l2";
  all.push_back(gaps);

  Setting slopes = flat("differences between rows", {11, 8});
  slopes.loss = "h1";
  slopes.shape.target_channels = 2;
  slopes.shape.target_mean = {0.2, -0.1};
  slopes.shape.target_deviation = {1.5, 0.7};
  all.push_back(slopes);

  Setting slopes_with_gaps = gaps;
  slopes_with_gaps.name = "differences between rows, missing values";
  slopes_with_gaps.loss = "h1";
  all.push_back(slopes_with_gaps);

  Setting li = flat("li, padded", {13, 7});
  li.keys.block = "li";
  li.keys.padding = 4;
  li.keys.modes = {5, 3};
  all.push_back(li);

  Setting rollout = flat("rollout", {9, 8});
  rollout.keys.layers = 1;
  rollout.shape.rollout = 3;
  rollout.loss = "squared-l2";
  all.push_back(rollout);

  Setting solid = flat("three axes", {7, 6, 5});
  solid.keys.modes = {5, 4, 4};
  solid.keys.padding = 2;
  all.push_back(solid);

  for (const char* const factorization : {"tucker", "cp"}) {
    for (const char* const implementation : {"factorized", "reconstructed"}) {
      Setting tfno = flat(std::string(factorization) + ", " + implementation, {10, 8});
      tfno.keys.kind = "tfno";
      tfno.keys.rank = 0.4;
      tfno.keys.factorization = factorization;
      tfno.keys.implementation = implementation;
      all.push_back(tfno);
    }
  }
  return all;
}

std::vector<Setting> spheres() {
  std::vector<Setting> all;
  all.push_back(sphere("makani, odd rows", "equiangular", 17, 24));

  Setting small = sphere("torch-harmonics, rollout", "legendre-gauss", 18, 20);
  small.keys.block = "torch-harmonics";
  small.shape.rollout = 2;
  small.shape.input_channels = 2;
  all.push_back(small);

  Setting diagonal = sphere("by order", "equiangular", 19, 18);
  diagonal.keys.spectral_operator = "diagonal";
  diagonal.keys.norm = "none";
  diagonal.keys.big_skip = false;
  all.push_back(diagonal);
  return all;
}

Setting adaptive() {
  Setting setting = flat("afno", {14, 12});
  setting.keys.kind = "afno";
  setting.keys.modes = RunConfig::Model().modes;
  setting.keys.patch = 2;
  setting.keys.spectral_blocks = 2;
  return setting;
}

// One rank of a group, alone in it where there is no transport.
class Rank {
 public:
  Rank(const Setting& setting, dist::Session& session, dist::Transport* transport)
      : setting_(setting), transport_(transport), group_(transport ? transport->size() : 1) {
    nn::Declaration declaration;
    declaration.precision = setting.precision;
    nn::FieldCut cut{transport ? transport->member() : 0, group_};
    model_ =
        nn::make_field_model(setting.keys, setting.loss, setting.shape, batch, declaration, cut);
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
        {cut.member, {0, 0, cut.member}, step.data_group, step.tensor_group, {}, {}});
    tier_ = std::make_unique<DeviceTier>(std::numeric_limits<std::int64_t>::max() / 2);
    const DeviceScope scope(*tier_);
    state_ =
        initial_state(device_.queue(Lane::Compute), model_, setting.precision, 11,
                      std::vector<StateSpec>{{.name = "first_moment"}, {.name = "second_moment"}});
  }

  StepOutputs step(std::int64_t number, const plan::Program& program, bool training) {
    Machine machine;
    machine.device = &device_;
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
    inputs.step = number;
    inputs.training = training;
    inputs.loss_scale = 1.0 / micro_batches;
    inputs.learning_rate = 1e-2;
    inputs.clip_norm = 0.5;
    inputs.load = [&](int micro_batch) { return batch_of(number, micro_batch); };
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

 private:
  // What the first rank measured, so that all know the same; products are the default library's.
  void profile(dist::Session& session, const nn::Declaration& declaration) {
    std::string text;
    if (transport_ == nullptr) return;
    if (session.rank() == 0) {
      plan::CostTable table;
      profile_model(device_.queue(Lane::Compute), model_, declaration, table, [](int, int) {});
      text = plan::to_json(table).dump();
    }
    text = session.broadcast(text);
    const auto table = plan::cost_table_from_json(nlohmann::json::parse(text), "rank 0");
    EXPECT_TRUE(plan::apply_costs(table, model_.graph));
    products_ = nn::Products::from_json(table.products);
  }

  // Rows without a place in the field hold a number that would be seen in every sum.
  std::vector<float> field(std::uint64_t number, std::int64_t leading) const {
    const std::int64_t rows = setting_.shape.points[0];
    const std::int64_t in_row = setting_.shape.count() / rows;
    const std::int64_t slots =
        model_.rows.cut() ? static_cast<std::int64_t>(model_.rows.slots.size()) : rows;
    std::vector<float> values;
    for (std::int64_t line = 0; line < leading; ++line) {
      for (std::int64_t slot = 0; slot < slots; ++slot) {
        const std::int64_t row = model_.rows.row(slot);
        for (std::int64_t p = 0; p < in_row; ++p) {
          const auto place = static_cast<double>((line * rows + row) * in_row + p);
          values.push_back(
              row == nn::FieldRows::none
                  ? 5.0F
                  : static_cast<float>(std::sin(0.37 * place + 1.7 * static_cast<double>(number))));
        }
      }
    }
    return values;
  }

  HostBatch batch_of(std::int64_t step, int micro_batch) const {
    HostBatch made;
    const auto number = static_cast<std::uint64_t>(step * micro_batches + micro_batch);
    for (std::int64_t b = 0; b < batch; ++b)
      made.samples.push_back(static_cast<std::int64_t>(number) + b);
    made.fields["input"] = field(number, batch * setting_.shape.input_channels);
    made.fields["target"] =
        field(number + 1000, setting_.shape.rollout * batch * setting_.shape.target_channels);
    if (setting_.shape.masked) {
      auto& mask = made.fields["mask"];
      mask = field(number + 2000, (setting_.shape.push_forward + setting_.shape.rollout) * batch *
                                      setting_.shape.target_channels);
      for (float& value : mask) value = value > -0.3F ? 1.0F : 0.0F;
    }
    return made;
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
  device::CpuDevice device_;
  std::unique_ptr<DeviceTier> tier_;
  ModelState state_;
  std::vector<at::Tensor> gradients_;
  std::map<std::size_t, std::vector<double>> gradient_values_;  // what they point to
};

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

class FieldTensorAxis : public testing::Test {
 protected:
  FieldTensorAxis() : session_(dist::Session::start()), thread_(session_) {
    garonne::test::use_threads(1);
    std::vector<int> members(static_cast<std::size_t>(session_.size()));
    std::iota(members.begin(), members.end(), 0);
    if (session_.size() > 1) transport_ = dist::make_transport("mpi", session_, thread_, members);
  }

  void compare(const Setting& setting) {
    SCOPED_TRACE(setting.name + ", " + setting.plan);
    Rank whole(setting, session_, nullptr);
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
      check_bytes(mine, here);
      if (number > 1) continue;
      // Before a norm a bias has no gradient but what rounding leaves.
      const double rounding = 1e-15 * norm_of_all(whole.gradients());
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const at::Tensor& wanted = whole.gradients()[p];
        EXPECT_LE(difference(mine.model().boxes[p], mine.gradients()[p], wanted),
                  std::max(1e-12 * wanted.norm().item<double>(), rounding))
            << parameters[p].name;
      }
    }
  }

  static void check_bytes(const Rank& rank, const StepOutputs& outputs) {
    for (std::size_t i = 0; i < outputs.measurements.size(); ++i) {
      ASSERT_LE(outputs.measurements[i].peak_bytes, rank.prediction().during_bytes[i])
          << plan::describe(rank.program().instructions[i]);
    }
    EXPECT_GE(static_cast<double>(outputs.peak_bytes),
              0.99 * static_cast<double>(rank.prediction().peak_bytes));
  }

  dist::Session session_;
  dist::CommunicationThread thread_;
  std::unique_ptr<dist::Transport> transport_;
};

TEST_F(FieldTensorAxis, FourierOperatorsTrainAsOnOneRank) {
  for (const Setting& setting : settings()) compare(setting);
}

TEST_F(FieldTensorAxis, AdaptiveOperatorsTrainAsOnOneRank) {
  Setting setting = adaptive();
  compare(setting);
  setting.keys.hard_thresholding = 0.6;
  setting.shape.points = {10, 8};
  compare(setting);
}

TEST_F(FieldTensorAxis, SphericalOperatorsTrainAsOnOneRank) {
  for (const Setting& setting : spheres()) compare(setting);
}

TEST_F(FieldTensorAxis, WhateverIsRunAgain) {
  for (Setting setting : {settings()[0], spheres()[0]}) {
    for (const char* const plan : {"full", "selective"}) {
      setting.plan = plan;
      compare(setting);
    }
  }
}

// Loosely: their sums round otherwise. Bytes are exact.
TEST_F(FieldTensorAxis, OtherPrecisions) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    for (Setting setting : {settings()[2], settings()[3], adaptive(), spheres()[0]}) {
      setting.precision = precision;
      SCOPED_TRACE(setting.name + " " + precision_name(precision));
      Rank whole(setting, session_, nullptr);
      Rank mine(setting, session_, transport_.get());
      const double tolerance = precision == Precision::Float32 ? 1e-4 : 5e-2;
      for (std::int64_t number = 1; number <= 5; ++number) {
        const StepOutputs here = mine.step(number);
        const double there = whole.step(number).loss;
        EXPECT_NEAR(here.loss, there, tolerance * there);
        check_bytes(mine, here);
      }
    }
  }
}

TEST_F(FieldTensorAxis, RefusesWhatCannotBeCut) {
  const auto refused = [](const Setting& setting, int members, const char* key, const char* what) {
    SCOPED_TRACE(setting.name);
    try {
      nn::make_field_model(setting.keys, setting.loss, setting.shape, 1, nn::Declaration(),
                           {0, members});
      FAIL() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), key);
      EXPECT_NE(error.reason().find(what), std::string::npos) << error.reason();
    }
  };
  Setting line = flat("one axis", {12});
  line.keys.modes = {4};
  refused(line, 2, "grid.tensor", "two or three axes");
  // Of eight rows with the padding, the last of four ranks has the last two.
  Setting short_field = flat("five rows", {5, 9});
  short_field.keys.padding = 3;
  refused(short_field, 4, "grid.tensor", "the nearest that work: 2");
  Setting few_modes = flat("three modes", {20, 9});
  few_modes.keys.modes = {3, 4};
  refused(few_modes, 4, "grid.tensor", "the nearest that work: 3");
  Setting few_pairs = sphere("nine rows", "equiangular", 9, 16);
  refused(few_pairs, 4, "grid.tensor", "the nearest that work: 2");
  Setting few_patches = adaptive();
  few_patches.shape.points = {6, 8};
  refused(few_patches, 4, "grid.tensor", "the nearest that work: 3");
}

}  // namespace
}  // namespace garonne::exec
