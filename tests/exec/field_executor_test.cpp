// The executor on models of fields: bits whatever is recomputed, bytes as predicted, and a loss
// that falls.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "device/cpu_device.hpp"
#include "exec/executor.hpp"
#include "exec/profile/profile.hpp"
#include "nn/compute_session.hpp"
#include "nn/fields/field_model.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t batch = 2;
constexpr int micro_batches = 2;

struct Setting {
  std::string name;
  Precision precision = Precision::Float32;
  RunConfig::Model keys;
  nn::FieldShape shape;
  std::string loss = "relative-l2";
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Precision precision : {Precision::Float32, Precision::Float64, Precision::BFloat16}) {
    Setting fno{"fno", precision, {}, {}, "relative-l2"};
    fno.keys.kind = "fno";
    fno.keys.layers = 3;
    fno.keys.hidden = 16;
    fno.keys.modes = {8, 8};
    fno.shape.input_channels = fno.shape.target_channels = 1;
    fno.shape.points = {16, 16};
    all.push_back(fno);

    Setting rollout = fno;
    rollout.name = "rollout of 3 steps";
    rollout.keys.layers = 1;
    rollout.shape.input_channels = 3;
    rollout.shape.target_channels = 2;
    rollout.shape.rollout = 3;
    all.push_back(rollout);

    Setting pushed = rollout;
    pushed.name = "push-forward, masked, noise";
    pushed.shape.rollout = 2;
    pushed.shape.push_forward = 2;
    pushed.shape.masked = true;
    pushed.shape.noise = 0.02;
    all.push_back(pushed);

    Setting ensemble = fno;
    ensemble.name = "ensembles";
    ensemble.loss = "crps";
    ensemble.shape.members = 3;
    ensemble.shape.noise = 0.02;
    all.push_back(ensemble);

    Setting padded = fno;
    padded.name = "padded, tucker";
    padded.keys.kind = "tfno";
    padded.keys.block = "li";
    padded.keys.rank = 0.3;
    padded.keys.padding = 3;
    padded.shape.points = {13, 11};
    all.push_back(padded);

    Setting u_shaped = rollout;
    u_shaped.name = "u-shaped, rollout of 2 steps";
    u_shaped.keys = RunConfig::Model();
    u_shaped.keys.kind = "ufno";
    u_shaped.keys.hidden = 12;
    u_shaped.keys.modes = {8, 6};
    u_shaped.keys.padding = 3;
    u_shaped.shape.points = {13, 9};
    u_shaped.shape.rollout = 2;
    all.push_back(u_shaped);
  }
  return all;
}

// Keeps an arbitrary half of all values and records; 0 keeps all, 1 nothing that can be made again.
plan::NodeSchedule schedule_of(const plan::ModelGraph& graph, unsigned which) {
  plan::Fates fates = plan::keep_everything(graph);
  std::mt19937 random(which);
  const auto any = [&] {
    const bool keeps = which == 0 || (which > 1 && random() % 2 == 0);
    return keeps ? plan::Fate::Keep : plan::Fate::Recompute;
  };
  for (plan::Fate& fate : fates.values) fate = any();
  for (plan::RecordFate& record : fates.records) record.fate = any();
  return plan::recompute_on_demand(graph, fates);
}

class FieldRank {
 public:
  FieldRank(const Setting& setting, unsigned which) : setting_(setting) {
    nn::Declaration declaration;
    declaration.precision = setting.precision;
    declaration.threads = 2;
    model_ = nn::make_field_model(setting.keys, setting.loss, setting.shape, batch, declaration);
    // What a table of this machine would say, measured once for each model.
    static std::map<std::string, plan::CostTable> tables;
    plan::CostTable& table = tables[setting.name + precision_name(setting.precision)];
    profile_model(device_.queue(Lane::Compute), model_, declaration, table, [](int, int) {});
    plan::apply_costs(table, model_.graph);
    products_ = nn::Products::from_json(table.products);
    RunConfig config;
    config.optimizer.weight_decay = 0;
    optimizer_ = optim::make_optimizer(config);
    plan::StepShape step;
    step.micro_batches = micro_batches;
    step.element_bytes.parameter = compute_bytes(setting.precision);
    step.element_bytes.master = has_master(setting.precision) ? state_bytes(setting.precision) : 0;
    step.element_bytes.gradient = step.element_bytes.state = state_bytes(setting.precision);
    step.optimizer_states = optimizer_->states();
    step.data_group = {0};
    program_ = plan::make_training_program(
        model_.graph, step, plan::same_for_all(schedule_of(model_.graph, which), micro_batches));
    prediction_ = plan::replay(program_);
    plan::prove(program_, model_.graph);
    tier_ = std::make_unique<DeviceTier>(std::numeric_limits<std::int64_t>::max() / 2);
    const DeviceScope scope(*tier_);
    state_ =
        initial_state(device_.queue(Lane::Compute), model_, setting.precision, 11,
                      std::vector<StateSpec>{{.name = "first_moment"}, {.name = "second_moment"}});
  }

  StepOutputs step(std::int64_t number) {
    RankResources resources;
    resources.device = &device_;
    resources.tier = tier_.get();
    resources.state = &state_;
    resources.products = &products_;
    resources.optimizer = optimizer_.get();
    StepInputs inputs;
    inputs.step = number;
    inputs.loss_scale = 1.0 / micro_batches;
    inputs.learning_rate = 3e-3;
    inputs.clip_norm = 1;
    inputs.load = [this](int micro_batch) { return batch_of(micro_batch); };
    return Executor(model_, program_, resources).run(inputs);
  }

  std::int64_t predicted_peak() const { return prediction_.peak_bytes; }

 private:
  // Waves, and the target a smoother wave of the same phase.
  HostBatch batch_of(int micro_batch) const {
    const nn::FieldShape& shape = setting_.shape;
    HostBatch made;
    auto& input = made.fields["input"];
    auto& target = made.fields["target"];
    const std::int64_t points = shape.count();
    const auto wave = [&](std::int64_t sample, std::int64_t channel, std::int64_t p, double speed) {
      const double place = static_cast<double>(p) / static_cast<double>(points);
      const double phase = static_cast<double>(3 * sample + channel);
      return static_cast<float>(std::sin(speed * place + phase));
    };
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t sample = micro_batch * batch + b;
      made.samples.push_back(sample);
      for (std::int64_t c = 0; c < shape.input_channels; ++c) {
        for (std::int64_t p = 0; p < points; ++p) input.push_back(wave(sample, c, p, 25));
      }
    }
    for (std::int64_t r = 0; r < shape.rollout; ++r) {
      for (std::int64_t b = 0; b < batch; ++b) {
        for (std::int64_t c = 0; c < shape.target_channels; ++c) {
          for (std::int64_t p = 0; p < points; ++p)
            target.push_back(wave(micro_batch * batch + b, c + r, p, 9));
        }
      }
    }
    if (!shape.masked) return made;
    auto& mask = made.fields["mask"];
    const std::int64_t steps = shape.push_forward + shape.rollout;
    for (std::int64_t i = 0; i < steps * batch * shape.target_channels * points; ++i)
      mask.push_back(i % 7 == 0 ? 0 : 1);
    return made;
  }

  Setting setting_;
  nn::Model model_;
  nn::Products products_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  plan::Program program_;
  plan::Prediction prediction_;
  device::CpuDevice device_;
  std::unique_ptr<DeviceTier> tier_;
  ModelState state_;
};

TEST(FieldExecutor, RecomputingGivesTheSameBitsWithinThePrediction) {
  for (const auto& setting : settings()) {
    SCOPED_TRACE(setting.name + " " + precision_name(setting.precision));
    FieldRank keeping(setting, 0);
    std::vector<StepOutputs> wanted;
    for (std::int64_t step = 1; step <= 3; ++step) wanted.push_back(keeping.step(step));
    for (const unsigned which : {0U, 1U, 2U, 3U}) {
      SCOPED_TRACE(which);
      FieldRank rank(setting, which);
      for (std::int64_t step = 1; step <= 3; ++step) {
        const StepOutputs got = rank.step(step);
        const StepOutputs& kept = wanted[static_cast<std::size_t>(step - 1)];
        EXPECT_EQ(got.loss, kept.loss);
        EXPECT_EQ(got.gradient_norm, kept.gradient_norm);
        EXPECT_LE(got.peak_bytes, rank.predicted_peak());
        EXPECT_GE(static_cast<double>(got.peak_bytes),
                  0.99 * static_cast<double>(rank.predicted_peak()));
      }
    }
  }
}

TEST(FieldExecutor, TheLossFalls) {
  for (const auto& setting : settings()) {
    SCOPED_TRACE(setting.name + " " + precision_name(setting.precision));
    FieldRank rank(setting, 0);
    const double first = rank.step(1).loss;
    double last = first;
    for (std::int64_t step = 2; step <= 100; ++step) last = rank.step(step).loss;
    EXPECT_LT(last, 0.6 * first);
  }
}

}  // namespace
}  // namespace garonne::exec
