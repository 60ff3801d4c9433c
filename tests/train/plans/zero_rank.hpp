// A rank that trains a small GPT under any stage of ZeRO, on real ranks or alone.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "device/cpu_device.hpp"
#include "dist/communication_thread.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "exec/host_access.hpp"
#include "exec/profile/profile.hpp"
#include "exec/token_batch.hpp"
#include "nn/compute_session.hpp"
#include "nn/gpt/gpt.hpp"
#include "optim/exercise_optimizers.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/rank_program.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/plans/saving_plan.hpp"
#include "train/scratch.hpp"

namespace garonne::train {

inline constexpr std::int64_t vocabulary = 61;
inline constexpr std::int64_t sequence = 12;
inline constexpr std::int64_t batch = 2;
inline constexpr int micro_batches_of_step = 6;  // divides by two and by three ranks

struct Variant {
  int stage = 0;
  Precision precision = Precision::Float64;
  int ahead = 1;
  const char* plan = "keep-all";
  const char* optimizer = "adamw";  // of exercise_kinds()
};

inline nn::Declaration declaration_of(Precision precision) {
  nn::Declaration declaration;
  declaration.precision = precision;
  declaration.threads = 1;
  return declaration;
}

inline plan::NodeSchedule schedule_of(const plan::ModelGraph& graph, const std::string& name) {
  for (const auto& policy : plan::stage_solvers()) {
    if (policy.name != name) continue;
    const auto family = policy.schedules(graph);
    return family[family.size() / 2];
  }
  return {};
}

// The global micro-batch `number`, whoever runs it.
inline exec::HostBatch batch_of(int number) {
  return exec::token_batch(number * batch, batch, sequence, vocabulary);
}

// Costs of this resources, so that transients are what they are.
inline const plan::CostTable& costs_of(Precision precision) {
  static std::map<Precision, plan::CostTable> tables;
  const auto found = tables.find(precision);
  if (found != tables.end()) return found->second;
  const nn::Declaration declaration = declaration_of(precision);
  const nn::Model model =
      nn::make_gpt({2, 27, 3, sequence, vocabulary, 0.2, 0.1}, batch, declaration);
  exec::profile_model(Queue(), model, declaration, tables[precision], [](int, int) {});
  return tables[precision];
}

// One rank of `ranks`; alone where that is one.
class Rank {
 public:
  Rank(const Variant& variant, int ranks, int rank, dist::Transport* transport,
       std::unique_ptr<device::Device> device = std::make_unique<device::CpuDevice>())
      : ranks_(ranks), rank_(rank), transport_(transport), device_(std::move(device)) {
    const nn::Declaration declaration = declaration_of(variant.precision);
    model_ = nn::make_gpt({2, 27, 3, sequence, vocabulary, 0.2, 0.1}, batch, declaration);
    plan::apply_costs(costs_of(variant.precision), model_.graph);
    products_ = nn::Products::from_json(costs_of(variant.precision).products);
    RunConfig config;
    config.optimizer.weight_decay = 0.1;
    config.optimizer.name = variant.optimizer;
    // Rates that learn in a few steps.
    if (config.optimizer.name == "lars") config.optimizer.trust_coefficient = 1;
    optimizer_ = optim::make_optimizer(config, optim::exercise_kinds());
    plan::StepShape step;
    step.micro_batches = micro_batches_of_step / ranks;
    step.element_bytes.parameter = compute_bytes(variant.precision);
    step.element_bytes.master = has_master(variant.precision) ? state_bytes(variant.precision) : 0;
    step.element_bytes.gradient = step.element_bytes.state = state_bytes(variant.precision);
    step.optimizer_states = optimizer_->states();
    step.tensor_sums = optimizer_->sums();
    step.data_group.resize(static_cast<std::size_t>(ranks));
    std::iota(step.data_group.begin(), step.data_group.end(), 0);
    step.world_group = step.data_group;
    step.bucket_bytes = ranks > 1 ? 20'000 : 0;
    step.zero = variant.stage;
    step.gathers_ahead = variant.ahead;
    program_ = plan::program_of_rank(
        plan::make_training_program(
            model_.graph, step,
            plan::same_for_all(schedule_of(model_.graph, variant.plan), step.micro_batches)),
        model_.graph, {rank, {rank, 0, 0}, step.data_group, {}, {}, {}});
    shape_ = step;
    prediction_ = plan::replay(program_);
    plan::prove(program_, model_.graph);
    tier_ = std::make_unique<exec::DeviceTier>(prediction_.peak_bytes, device_->kind());
    const exec::DeviceScope scope(*tier_);
    state_ =
        exec::initial_state(device_->queue(Lane::Compute), model_, variant.precision, 11, program_);
    exec::gather_parameters(state_, transport_);
  }

  exec::StepOutputs step(std::int64_t number) {
    exec::RankResources resources;
    resources.device = device_.get();
    resources.tier = tier_.get();
    resources.state = &state_;
    resources.products = &products_;
    resources.optimizer = optimizer_.get();
    resources.data = resources.world = transport_;
    gradients_.clear();
    resources.watch_gradient = [this](int parameter, const at::Tensor& gradient) {
      gradients_[parameter] = exec::copy_out(gradient);
    };
    exec::StepInputs inputs;
    inputs.seed = 5;
    inputs.step = number;
    inputs.loss_scale = 1.0 / micro_batches_of_step;
    inputs.learning_rate = 3e-3;
    inputs.clip_norm = 1;
    inputs.load = [this](int m) { return batch_of(rank_ * program_.micro_batches + m); };
    exec::Executor executor(model_, program_, resources);
    return executor.run(inputs);
  }

  CollectivePhases together(dist::Session& session) const {
    CollectivePhases result;
    if (ranks_ == 1) return result;
    result.rank = rank_;
    result.ranks = ranks_;
    result.phase = [&](const std::function<void()>& work) { session.agree(work); };
    result.gather = [&](const std::string& text) { return session.gather(text); };
    return result;
  }

  void save(const std::string& folder, std::int64_t step, dist::Session& session) const {
    Manifest manifest;
    manifest.step = step;
    save_checkpoint(folder, model_, optimizer_->states(), state_, manifest, together(session));
  }

  void load(const std::string& folder, std::int64_t step) {
    const std::string path = checkpoint_path(folder, step);
    load_checkpoint(path, verify_checkpoint(path), model_, optimizer_->states(), state_);
    exec::gather_parameters(state_, transport_);
  }

  // Of the copy of what it writes: as planned, and as it is.
  std::int64_t planned_bytes_of_copy() const {
    return bytes_of_copy(model_.graph, shape_, program_.buckets, {rank_, 0, 0});
  }
  std::int64_t copied_bytes() const {
    CollectivePhases together;
    together.rank = rank_;
    together.ranks = ranks_;
    std::vector<std::byte> room(static_cast<std::size_t>(planned_bytes_of_copy()));
    std::int64_t bytes = 0;
    for (const RankTensor& tensor :
         copy_of_state(model_, optimizer_->states(), state_, together, room)) {
      if (tensor.source)
        bytes += bytes_in_copy(static_cast<std::int64_t>(tensor.source->bytes.size()));
    }
    return bytes;
  }

  const nn::Model& model() const { return model_; }
  plan::Program& program() { return program_; }
  const plan::Program& program() const { return program_; }
  const plan::Prediction& prediction() const { return prediction_; }
  const exec::ModelState& state() const { return state_; }
  const std::map<int, std::vector<double>>& gradients() const { return gradients_; }

 private:
  int ranks_;
  int rank_;
  dist::Transport* transport_;
  nn::Model model_;
  nn::Products products_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  plan::StepShape shape_;
  plan::Program program_;
  plan::Prediction prediction_;
  std::unique_ptr<exec::DeviceTier> tier_;
  exec::ModelState state_;
  std::map<int, std::vector<double>> gradients_;
  std::unique_ptr<device::Device> device_;  // last: its lanes use the others
};

class ZeroTest : public testing::Test {
 protected:
  ZeroTest() : session_(dist::Session::start()), thread_(session_) {
    garonne::test::use_threads(1);
    std::vector<int> members(static_cast<std::size_t>(session_.size()));
    std::iota(members.begin(), members.end(), 0);
    transport_ = dist::make_transport("mpi", session_, thread_, members);
  }

  std::unique_ptr<Rank> rank(const Variant& variant) {
    return std::make_unique<Rank>(variant, session_.size(), session_.rank(), transport_.get());
  }
  static std::unique_ptr<Rank> alone(Precision precision, const char* optimizer = "adamw") {
    Variant variant{0, precision};
    variant.optimizer = optimizer;
    return std::make_unique<Rank>(variant, 1, 0, nullptr);
  }

  // A folder that all ranks know, removed by the first.
  std::string folder() {
    if (session_.rank() == 0) {
      scratch_.reset();
      scratch_ = std::make_unique<test::Scratch>();
      return session_.broadcast(scratch_->path());
    }
    return session_.broadcast("");
  }

  dist::Session session_;
  dist::CommunicationThread thread_;
  std::unique_ptr<dist::Transport> transport_;
  std::unique_ptr<test::Scratch> scratch_;
};

}  // namespace garonne::train
