// One rank of a small GPT, or of another model of tokens, with everything that its steps need.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/cpu_device.hpp"
#include "device/disk_tier.hpp"
#include "device/emulated_device.hpp"
#include "exec/executor.hpp"
#include "exec/host_access.hpp"
#include "exec/profile/profile.hpp"
#include "exec/token_batch.hpp"
#include "nn/compute_session.hpp"
#include "nn/gpt/gpt.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/rotated_step.hpp"
#include "plan/stage/stage_planner.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"

namespace garonne::exec {

inline constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max() / 2;

struct Setting {
  Precision precision = Precision::Float32;
  int micro_batches = 1;
  std::int64_t batch = 2;
  std::string plan = "keep-all";
  double budget_share = -1;  // from the smallest budget (0) to keep-all (1); else `plan`
  double dropout = 0.25;
  double attention_dropout = 0;
  std::int64_t sequence = 24;
  std::int64_t hidden = 32;
  // Another model than the GPT of these sizes.
  std::function<nn::Model(const Setting&, const nn::Declaration&)> model = nullptr;
  bool nominal_seconds = false;  // plans go by these, not by those that are measured
  // Changes the step's Program before it runs.
  std::function<plan::Program(plan::Program)> change = nullptr;
  // Lanes that are late in another way with each; none: a CPU.
  std::optional<std::uint64_t> emulated_seed = std::nullopt;
  // Of copies between that device and its host; its lanes are not late then. 0: a CPU.
  double copied_bytes_per_second = 0;
  std::string disk_folder = "";  // of the tier below the host; none where empty
  double clip_norm = 0;
  std::string optimizer = "adamw";

  std::string text() const {
    return std::string(precision_name(precision)) + " " + plan + ", micro-batches " +
           std::to_string(micro_batches) + " of " + std::to_string(batch) + ", " + optimizer +
           (attention_dropout > 0 ? ", dropout of attention" : "");
  }
};

inline constexpr std::int64_t vocabulary = 61;

// The middle one of a policy's family; "any <n>" keeps an arbitrary half of all values and records,
// in an arbitrary one of their ways.
inline plan::NodeSchedule schedule_of(const plan::ModelGraph& graph, const std::string& name) {
  if (name.rfind("any ", 0) == 0) {
    std::mt19937 random(static_cast<unsigned>(std::stoi(name.substr(4))));
    plan::Fates fates = plan::keep_everything(graph);
    const auto any = [&] { return random() % 2 == 0 ? plan::Fate::Keep : plan::Fate::Recompute; };
    for (plan::Fate& fate : fates.values) fate = any();
    for (std::size_t n = 0; n < fates.records.size(); ++n) {
      fates.records[n].fate = any();
      const int ways = graph.nodes[n].keep_options();
      if (ways > 1)
        fates.records[n].option = static_cast<int>(random() % static_cast<unsigned>(ways));
    }
    return plan::recompute_on_demand(graph, fates);
  }
  for (const auto& policy : plan::stage_solvers()) {
    if (policy.name != name) continue;
    auto family = policy.schedules(graph);
    return family[family.size() / 2];
  }
  throw std::out_of_range("no policy " + name);
}

// One rank with everything that a step needs, in a tier of its own.
class Rank {
 public:
  explicit Rank(const Setting& setting, std::int64_t limit = no_limit) : setting_(setting) {
    declaration_.precision = setting.precision;
    declaration_.threads = 2;
    if (setting.model) {
      model_ = setting.model(setting, declaration_);
    } else {
      const nn::GptSizes sizes{3,
                               setting.hidden,
                               4,
                               setting.sequence,
                               vocabulary,
                               setting.dropout,
                               setting.attention_dropout};
      model_ = nn::make_gpt(sizes, setting.batch, declaration_);
    }
    profile();
    RunConfig config;
    config.optimizer.weight_decay = 0.1;
    config.optimizer.name = setting.optimizer;
    optimizer_ = optim::make_optimizer(config);
    plan::StepShape step;
    step.micro_batches = setting.micro_batches;
    step.element_bytes.parameter = compute_bytes(setting.precision);
    step.element_bytes.master = has_master(setting.precision) ? state_bytes(setting.precision) : 0;
    step.element_bytes.gradient = step.element_bytes.state = state_bytes(setting.precision);
    step.optimizer_states = optimizer_->states();
    step.tensor_sums = optimizer_->sums();
    step.data_group = {0};
    if (setting.budget_share >= 0) {
      const plan::StagePlan most = plan::plan_stage(model_.graph, step, {no_limit});
      const std::int64_t least = most.minimum_budget_bytes;
      const auto more = static_cast<double>(most.prediction.peak_bytes - least);
      budget_ = least + static_cast<std::int64_t>(setting.budget_share * more);
      program_ = plan::plan_stage(model_.graph, step, {budget_}).program;
    } else {
      program_ = plan::make_training_program(
          model_.graph, step,
          plan::same_for_all(schedule_of(model_.graph, setting.plan), setting.micro_batches));
    }
    evaluation_ = plan::make_forward_program(model_.graph, step, model_.graph.loss);
    if (setting.disk_folder.empty()) {
      host_ = std::make_unique<device::TierMemory>(
          device::TierSettings{.tier = Tier::Host, .limit_bytes = std::int64_t{1} << 28});
      program_.tier(Tier::Host).granularity = host_->granularity();
    } else {
      disk_ = std::make_unique<device::DiskTier>(device::DiskTierSettings{
          .folder = setting.disk_folder, .limit_bytes = std::int64_t{1} << 26});
      program_.tier(Tier::Disk).granularity = disk_->memory().granularity();
    }
    plan::replay(evaluation_);
    plan::prove(evaluation_, model_.graph);
    if (setting.change) program_ = setting.change(std::move(program_));
    prediction_ = plan::replay(program_);
    plan::prove(program_, model_.graph);
    if (setting.emulated_seed) {
      device_ = std::make_unique<device::EmulatedDevice>(
          device::EmulatedSettings{.delay_seed = setting.emulated_seed, .compute_thread = true});
    }
    if (const double rate = setting.copied_bytes_per_second; rate > 0) {
      device_ = std::make_unique<device::EmulatedDevice>(device::EmulatedSettings{
          .bytes_per_second = {{Lane::CopyOut, rate}, {Lane::CopyIn, rate}}});
    }
    tier_ = std::make_unique<DeviceTier>(limit, device_->kind());
    const DeviceScope scope(*tier_);
    if (prediction_.of(Tier::Host).static_bytes + prediction_.of(Tier::Disk).static_bytes > 0) {
      state_ =
          initial_state(device_->queue(Lane::Compute), model_, setting.precision, 11, program_);
      make_buffers_below(state_, model_, program_, 11, {host_.get(), disk_.get()});
      evaluation_ = plan::with_lasting_as(std::move(evaluation_), program_, {}, no_limit).value();
      plan::replay(evaluation_);
      plan::prove(evaluation_, model_.graph);
      return;
    }
    state_ = initial_state(device_->queue(Lane::Compute), model_, setting.precision, 11,
                           optimizer_->states());
  }

  StepOutputs step(std::int64_t number = 1, double learning_rate = 1e-3) {
    return run(program_, number, learning_rate, true);
  }
  StepOutputs evaluate() { return run(evaluation_, 1, 0, false); }

  StepOutputs run(const plan::Program& program, std::int64_t number, double learning_rate,
                  bool training) {
    RankResources resources;
    resources.device = device_.get();
    resources.host = host_.get();
    resources.disk = disk_.get();
    resources.tier = tier_.get();
    resources.state = &state_;
    resources.products = &products_;
    resources.optimizer = optimizer_.get();
    resources.watch_gradient = [this](int parameter, const at::Tensor& gradient) {
      gradients_.resize(model_.graph.parameters.size());
      gradients_[static_cast<std::size_t>(parameter)] = copy_out(gradient);
    };
    StepInputs inputs;
    inputs.seed = 5;
    inputs.step = number;
    inputs.training = training;
    inputs.loss_scale = 1.0 / setting_.micro_batches;
    inputs.learning_rate = learning_rate;
    inputs.clip_norm = clip_norm > 0 ? clip_norm : setting_.clip_norm;
    inputs.load = [this](int micro_batch) {
      return token_batch(micro_batch * setting_.batch, setting_.batch, setting_.sequence,
                         vocabulary);
    };
    // What a rotated step leaves to the next one is the executor's.
    if (training && plan::is_rotated(program)) {
      if (!rotated_) rotated_ = std::make_unique<Executor>(model_, program, resources);
      return rotated_->run(inputs);
    }
    Executor executor(model_, program, resources);
    return executor.run(inputs);
  }
  void flush() {
    if (rotated_) rotated_->flush();
  }
  // And what the last one has left.
  void forget_steps() { rotated_.reset(); }

  const nn::Model& model() const { return model_; }
  nn::Model& model() { return model_; }
  const plan::Program& program() const { return program_; }
  plan::Program& program() { return program_; }
  const plan::Prediction& prediction() const { return prediction_; }
  std::int64_t budget() const { return budget_; }
  plan::Prediction evaluation_prediction() const { return plan::replay(evaluation_); }
  const DeviceTier& tier() const { return *tier_; }
  device::Device& device() { return *device_; }
  ModelState& state() { return state_; }
  // Below the device.
  std::int64_t live_bytes(Tier tier) const {
    return tier == Tier::Host ? host_->live_bytes() : disk_->memory().live_bytes();
  }
  const std::vector<std::vector<double>>& gradients() const { return gradients_; }

  double clip_norm = 0;

 private:
  void profile() {
    // What a table of this machine would say; measured once for each shape of the test program.
    static std::map<std::string, plan::CostTable> tables;
    plan::CostTable& table =
        tables[std::to_string(setting_.batch) + " " + std::to_string(setting_.sequence) + " " +
               std::to_string(setting_.hidden)];
    // Another library may be as fast and be chosen another time; bits are compared, so there is
    // one.
    profile_model(device_->queue(Lane::Compute), model_, declaration_, table, [](int, int) {});
    plan::apply_costs(table, model_.graph);
    if (setting_.nominal_seconds) plan::estimate_seconds({}, model_.graph);
    products_ = nn::Products::from_json(table.products);
  }

  Setting setting_;
  nn::Declaration declaration_;
  nn::Model model_;
  nn::Products products_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::int64_t budget_ = 0;
  plan::Program program_;
  plan::Program evaluation_;
  plan::Prediction prediction_;
  std::unique_ptr<device::Device> device_ = std::make_unique<device::CpuDevice>();
  std::unique_ptr<device::TierMemory> host_;
  std::unique_ptr<device::DiskTier> disk_;
  std::unique_ptr<DeviceTier> tier_;
  ModelState state_;
  std::vector<std::vector<double>> gradients_;
  std::unique_ptr<Executor> rotated_;
};

// Of a step of the rank's Program: live bytes exactly, and a peak that is not below by what
// matters.
inline void expect_predicted_bytes(const Rank& rank, const StepOutputs& outputs) {
  const plan::Prediction& predicted = rank.prediction();
  ASSERT_EQ(outputs.measurements.size(), rank.program().instructions.size());
  for (std::size_t i = 0; i < outputs.measurements.size(); ++i) {
    const std::string what = plan::describe(rank.program().instructions[i]);
    EXPECT_EQ(outputs.measurements[i].live_bytes, predicted.live_bytes[i]) << "after " << what;
    EXPECT_LE(outputs.measurements[i].peak_bytes, predicted.during_bytes[i]) << "during " << what;
  }
  EXPECT_LE(outputs.peak_bytes, predicted.peak_bytes);
  EXPECT_GE(static_cast<double>(outputs.peak_bytes),
            0.99 * static_cast<double>(predicted.peak_bytes));
  EXPECT_EQ(rank.tier().live_bytes(), predicted.static_bytes) << "a step leaves nothing behind";
}

inline constexpr Precision precisions[] = {Precision::Float32, Precision::Float64,
                                           Precision::BFloat16};

}  // namespace garonne::exec
