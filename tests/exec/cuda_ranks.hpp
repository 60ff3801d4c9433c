// Ranks of tests on the CPU and on a GPU's device over the made-up runtime, which take the same
// steps. Kernels are the host's on both, so each one runs when it is put: Compute has come to it by
// then.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "device/cpu_device.hpp"
#include "device/cuda_device.hpp"
#include "device/disk_tier.hpp"
#include "device/fake_cuda_runtime.hpp"
#include "device/fixed_arena.hpp"
#include "device/host_tier.hpp"
#include "exec/executor.hpp"
#include "exec/host_access.hpp"
#include "exec/host_kernels.hpp"
#include "exec/tier_room.hpp"
#include "exec/token_batch.hpp"
#include "nn/gpt/gpt.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/rotated_step.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::exec {

// A small GPT that learns the formula of token_batch.
inline constexpr std::int64_t text_batch = 2;
inline constexpr std::int64_t text_sequence = 24;
inline constexpr std::int64_t text_vocabulary = 61;

inline nn::Model small_text_model(const nn::Declaration& declaration) {
  return nn::make_gpt({2, 32, 4, text_sequence, text_vocabulary, 0.25}, text_batch, declaration);
}

// With dropout of attention, too.
inline nn::Model dropping_text_model(const nn::Declaration& declaration) {
  return nn::make_gpt({2, 32, 4, text_sequence, text_vocabulary, 0.25, 0.2}, text_batch,
                      declaration);
}

inline HostBatch small_text_batch(std::int64_t number) {
  return token_batch(number * text_batch, text_batch, text_sequence, text_vocabulary);
}

struct Setting {
  Precision precision = Precision::Float32;
  std::string plan = "keep-all";
  std::function<nn::Model(const nn::Declaration&)> make = small_text_model;
  std::function<HostBatch(std::int64_t number)> load = small_text_batch;  // of all micro-batches
  // Of several ranks: makes model and step the rank's share of them, and says which rank it is.
  std::function<plan::RankPlace(nn::Model& model, plan::StepShape& step)> share = nullptr;
  // Changes the step's Program before it runs.
  std::function<plan::Program(plan::Program)> change = nullptr;
  std::string optimizer = "adamw";
};

// What a step on either device needs, and what came of it.
class Rank {
 public:
  static constexpr int micro_batches = 3;

  // `apart`: kernels reach the device's memory only.
  Rank(const Setting& setting, std::int64_t granularity, bool apart) : load_(setting.load) {
    nn::Declaration declaration;
    declaration.precision = setting.precision;
    declaration.threads = 2;
    declaration.granularity = granularity;
    precision_ = setting.precision;
    model_ = setting.make(declaration);
    RunConfig config;
    config.optimizer.weight_decay = 0.1;
    config.optimizer.name = setting.optimizer;
    optimizer_ = optim::make_optimizer(config);
    plan::StepShape step;
    step.granularity = granularity;
    step.micro_batches = micro_batches;
    step.element_bytes.parameter = compute_bytes(setting.precision);
    step.element_bytes.master = has_master(setting.precision) ? state_bytes(setting.precision) : 0;
    step.element_bytes.gradient = step.element_bytes.state = state_bytes(setting.precision);
    step.optimizer_states = optimizer_->states();
    step.tensor_sums = optimizer_->sums();
    step.data_group = {0};
    plan::RankPlace place;
    if (setting.share) {
      place = setting.share(model_, step);
      data_ranks_ = static_cast<std::int64_t>(step.data_group.size());
      data_member_ = place.coordinates.data;
    }
    if (apart) {
      for (const nn::ConstantTable& table : nn::constant_tables(model_, setting.precision))
        step.workspaces.push_back({table.name, table.bytes});
    }
    for (const auto& policy : plan::stage_solvers()) {
      if (policy.name != setting.plan) continue;
      const auto family = policy.schedules(model_.graph);
      program_ = plan::make_training_program(
          model_.graph, step, plan::same_for_all(family[family.size() / 2], micro_batches));
    }
    if (setting.share) {
      program_ = plan::program_of_rank(std::move(program_), model_.graph, place);
    } else {
      evaluation_ = plan::make_forward_program(model_.graph, step, model_.graph.loss);
    }
    for (const Tier tier : {Tier::Host, Tier::Disk})
      program_.tier(tier).granularity = device::host_allocation_granularity;
    if (setting.change) program_ = setting.change(std::move(program_));
    prediction_ = plan::replay(program_);
    if (setting.share) return;
    evaluation_ =
        plan::with_lasting_as(std::move(evaluation_), program_, {}, prediction_.peak_bytes).value();
  }
  virtual ~Rank() = default;

  StepOutputs step(std::int64_t number, double learning_rate = 1e-2) {
    return run(program_, number, true, learning_rate);
  }
  double evaluate() { return run(evaluation_, 1, false, 0).report.at(0); }

  // Parameters, masters and states, on the host, by names that do not say where they last.
  virtual std::map<std::string, std::vector<double>> state() = 0;
  const std::map<int, std::vector<double>>& gradients() const { return gradients_; }
  const nn::Model& model() const { return model_; }
  const plan::Program& program() const { return program_; }
  const plan::Prediction& prediction() const { return prediction_; }

  // One executor for all steps from now on, which may record them. Watches no gradients.
  Executor& use_graphs(GraphUse use, double least_share_of_issue = 0) {
    watches = false;
    const RankResources resources = whole_resources();
    executor_ = std::make_unique<Executor>(model_, program_, resources);
    executor_->use_graphs(use, least_share_of_issue);
    return *executor_;
  }

  // What a rotated step has left.
  void flush() {
    if (executor_) executor_->flush();
  }

  // Transports and session of the resources, which outlive the rank's executor and not its device.
  // Parameters that others train are there from here on. Collective.
  void meet(const RankResources& others, std::vector<std::unique_ptr<dist::Transport>> transports) {
    others_ = others;
    transports_ = std::move(transports);
    gather();
  }

  bool watches = true;  // gradients, which are copied for that
  std::function<void()> on_gradient;
  std::function<void()> before;  // each instruction

  // What lasts on the host below the device, as if it were on it.
  static at::Tensor tensor_of(const Lowered& lowered) {
    return at::from_blob(lowered.block.data, lowered.sizes, at::TensorOptions(lowered.type));
  }
  static std::string name_of(const std::string& name) { return name.substr(0, name.find('@')); }

 protected:
  virtual RankResources resources() = 0;
  virtual void gather() { gather_parameters(state_, others_.data); }

  RankResources whole_resources() {
    RankResources resources = this->resources();
    resources.state = &state_;
    resources.products = &products_;
    resources.optimizer = optimizer_.get();
    resources.data = others_.data;
    resources.tensor = others_.tensor;
    resources.pipeline = others_.pipeline;
    resources.tied = others_.tied;
    resources.world = others_.world;
    resources.session = others_.session;
    return resources;
  }

  StepOutputs run(const plan::Program& program, std::int64_t number, bool training,
                  double learning_rate) {
    RankResources resources = whole_resources();
    if (watches) {
      resources.watch_gradient = [this](int parameter, const at::Tensor& gradient) {
        gradients_[parameter] = copy_out(gradient);
        if (on_gradient) on_gradient();
      };
    }
    StepInputs inputs;
    inputs.seed = 5;
    inputs.step = number;
    inputs.training = training;
    inputs.loss_scale = 1.0 / static_cast<double>(micro_batches * data_ranks_);
    inputs.learning_rate = learning_rate;
    inputs.clip_norm = 0.5;
    if (before) inputs.before = [this](bool) { before(); };
    inputs.load = [this, number](int micro_batch) {
      return load_((number * micro_batches + micro_batch) * data_ranks_ + data_member_);
    };
    // What a rotated step leaves to the next one is the executor's.
    if (training && !executor_ && plan::is_rotated(program))
      executor_ = std::make_unique<Executor>(model_, program, resources);
    if (training && executor_) return executor_->run(inputs);
    Executor executor(model_, program, resources);
    return executor.run(inputs);
  }

  std::function<HostBatch(std::int64_t number)> load_;
  Precision precision_{};
  nn::Model model_;
  nn::Products products_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  plan::Program program_;
  plan::Program evaluation_;
  plan::Prediction prediction_;
  std::map<int, std::vector<double>> gradients_;
  ModelState state_;
  std::int64_t data_ranks_ = 1;
  std::int64_t data_member_ = 0;
  RankResources others_;
  std::vector<std::unique_ptr<dist::Transport>> transports_;
  std::unique_ptr<Executor> executor_;
};

class CpuRank final : public Rank {
 public:
  explicit CpuRank(const Setting& setting)
      : Rank(setting, cpu_allocation_granularity, /*apart=*/false), tier_(prediction_.peak_bytes) {
    const DeviceScope scope(tier_);
    state_ = initial_state(device_.queue(Lane::Compute), model_, precision_, 11, program_);
  }

  std::map<std::string, std::vector<double>> state() override {
    std::map<std::string, std::vector<double>> all;
    for (const auto& [name, entry] : state_.buffers.entries()) all[name] = copy_out(entry.tensor);
    return all;
  }

 private:
  RankResources resources() override {
    RankResources resources;
    resources.device = &device_;
    resources.tier = &tier_;
    return resources;
  }

  device::CpuDevice device_;
  DeviceTier tier_;
};

// A GPU's device with tier and staging. The tier has room for `limit_bytes`, and twice that with
// the holes between blocks, of which small models have many.
class FakeGpu {
 public:
  static constexpr std::int64_t pinned_bytes = std::int64_t{512} << 10;
  // Small pieces, so that there are many.
  static constexpr std::int64_t disk_bytes =
      device::disk_pinned_pieces * 4 * device::host_allocation_granularity;

  // `host_bytes`: pinned for a tier below the device.
  FakeGpu(std::int64_t limit_bytes, std::int64_t host_bytes, device::FakeCudaSettings fake,
          device::CudaSettings cuda) {
    fake.host_reaches_device = true;
    runtime_ = std::make_unique<device::FakeCudaRuntime>(fake);
    cuda.longest_wait_seconds = 60;
    cuda_ = std::make_unique<device::CudaDevice>(*runtime_, cuda);
    device_ = std::make_unique<HostKernels>(*cuda_, *runtime_);
    cuda_->reserve(Tier::Host, pinned_bytes + disk_bytes + host_bytes);
    disk_pieces_ = cuda_->reserved(Tier::Host)->allocate(disk_bytes, "pieces for disk");
    if (host_bytes > 0) host_ = cuda_->reserved(Tier::Host)->allocate(host_bytes, "the host tier");
    const std::int64_t blocks = round_up(2 * limit_bytes, cuda_allocation_granularity);
    // After the blocks: what changes from step to step.
    const std::int64_t bytes = blocks + step_number_bytes;
    void* memory = nullptr;
    EXPECT_EQ(runtime_->allocate(memory, static_cast<std::size_t>(bytes)),
              device::CudaStatus::Success);
    memory_ = memory;
    numbers_ = static_cast<std::byte*>(memory) + blocks;
    device_->set_memory({static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)});
    const auto spoil = [device = device_.get()](device::Span block) { device->spoil(block); };
    auto arena = std::make_unique<device::FixedArena>(memory, blocks);
    arena_ = arena.get();
    tier_ = std::make_unique<DeviceTier>(
        std::make_shared<device::TierMemory>(
            device::TierSettings{.tier = Tier::Device,
                                 .limit_bytes = limit_bytes,
                                 .granularity = cuda_allocation_granularity,
                                 .spoil = spoil},
            std::move(arena)),
        DeviceKind::Emulated);
    staging_ = std::make_unique<Staging>(*device_, cuda_->reserved(Tier::Host));
  }
  // After all tensors of the tier.
  ~FakeGpu() {
    staging_.reset();
    cuda_->end();  // before its memory goes
    static_cast<void>(runtime_->free(memory_));
  }
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  device::FakeCudaRuntime& runtime() { return *runtime_; }
  HostKernels& device() { return *device_; }
  device::CudaDevice& cuda() { return *cuda_; }
  DeviceTier& tier() { return *tier_; }
  Staging& staging() { return *staging_; }
  std::byte* step_numbers() { return numbers_; }
  // To the end of the last block there ever was.
  std::int64_t reach_bytes() const { return arena_->reach_bytes(); }
  device::Span host() const { return host_; }
  device::Span disk_pieces() const { return disk_pieces_; }

 private:
  std::unique_ptr<device::FakeCudaRuntime> runtime_;
  std::unique_ptr<device::CudaDevice> cuda_;
  std::unique_ptr<HostKernels> device_;
  void* memory_ = nullptr;
  std::byte* numbers_ = nullptr;
  const device::FixedArena* arena_ = nullptr;  // the tier's
  device::Span host_;
  device::Span disk_pieces_;
  std::unique_ptr<DeviceTier> tier_;
  std::unique_ptr<Staging> staging_;
};

// A tier of exactly the bytes that were predicted, and those for others.
class GpuRank final : public Rank {
 public:
  explicit GpuRank(const Setting& setting, const device::FakeCudaSettings& fake = {},
                   const device::CudaSettings& cuda = {}, std::int64_t bytes_for_others = 0)
      : Rank(setting, cuda_allocation_granularity, /*apart=*/true),
        gpu_(prediction_.peak_bytes + bytes_for_others, room_on_host(), fake, cuda) {
    if (prediction_.host.peak_bytes > 0) {
      host_ = std::make_unique<device::HostTier>(
          device::HostTierSettings{.limit_bytes = prediction_.host.peak_bytes,
                                   .room_bytes = room_on_host(),
                                   .memory = gpu_.host()});
    }
    const plan::TierBytes on_disk = prediction_.of(Tier::Disk);
    if (on_disk.peak_bytes > 0) {
      disk_ = std::make_unique<device::DiskTier>(device::DiskTierSettings{
          .folder = std::filesystem::current_path(),
          .limit_bytes = on_disk.peak_bytes,
          .file_bytes = tier_room(program_, Tier::Disk, on_disk.peak_bytes),
          .pinned = gpu_.disk_pieces()});
    }
    const DeviceScope scope(gpu_.tier());
    state_ = initial_state(gpu_.device().queue(Lane::Compute), model_, precision_, 11, program_,
                           &gpu_.staging());
    if (prediction_.host.static_bytes > 0 || on_disk.static_bytes > 0) {
      make_buffers_below(state_, model_, program_, 11,
                         {host_ ? &host_->memory() : nullptr, disk_.get()});
    }
    // Its kernel was the host's, and did not wait for the copies.
    gpu_.device().catch_up();
    refresh_compute_copies(state_);
  }

  ~GpuRank() override {
    executor_.reset();
    transports_.clear();
    state_ = {};
  }

  std::map<std::string, std::vector<double>> state() override {
    std::map<std::string, std::vector<double>> all;
    for (const auto& [name, entry] : state_.buffers.entries()) {
      if (entry.lowered) {
        all[name_of(name)] = copy_out(disk_ && entry.lowered->memory == &disk_->memory()
                                          ? on_disk(*entry.lowered)
                                          : tensor_of(*entry.lowered));
        continue;
      }
      const at::Tensor& tensor = entry.tensor;
      if (tensor.scalar_type() != at::kByte) all[name] = copy_out(tensor, gpu_.staging());
    }
    return all;
  }

  // The copies of what kernels read.
  nn::DeviceTables& tables() { return state_.tables; }
  device::FakeCudaRuntime& runtime() { return gpu_.runtime(); }
  HostKernels& device() { return gpu_.device(); }
  device::CudaDevice& cuda() { return gpu_.cuda(); }
  DeviceTier& tier() { return gpu_.tier(); }
  std::int64_t reach_bytes() const { return gpu_.reach_bytes(); }
  std::int64_t live_bytes_on(Tier tier) const {
    if (tier == Tier::Disk) return disk_ ? disk_->memory().live_bytes() : 0;
    return host_ ? host_->memory().live_bytes() : 0;
  }

 private:
  at::Tensor on_disk(const Lowered& lowered) {
    const at::Tensor tensor = at::empty(lowered.sizes, at::TensorOptions(lowered.type));
    std::int64_t done = 0;
    disk_->show(lowered.block, 0, lowered.bytes, [&](std::span<const std::byte> piece) {
      std::memcpy(static_cast<std::byte*>(tensor.data_ptr()) + done, piece.data(), piece.size());
      done += static_cast<std::int64_t>(piece.size());
    });
    return tensor;
  }

  void gather() override {
    const DeviceScope scope(gpu_.tier());
    Rank::gather();
    gpu_.device().catch_up();
  }
  RankResources resources() override {
    RankResources resources;
    resources.device = &gpu_.device();
    resources.tier = &gpu_.tier();
    resources.staging = &gpu_.staging();
    resources.captures = &gpu_.device();
    resources.step_numbers = gpu_.step_numbers();
    resources.host = host_ ? &host_->memory() : nullptr;
    resources.disk = disk_.get();
    return resources;
  }

  std::int64_t room_on_host() const {
    return tier_room(program_, Tier::Host, prediction_.host.peak_bytes);
  }

  FakeGpu gpu_;
  std::unique_ptr<device::HostTier> host_;
  std::unique_ptr<device::DiskTier> disk_;
};

// Expects a step of both to have the same bits, within the planned bytes; the GPU's.
inline StepOutputs same_steps(CpuRank& cpu, GpuRank& gpu, std::int64_t number) {
  const StepOutputs wanted = cpu.step(number);
  StepOutputs made = gpu.step(number);
  EXPECT_EQ(wanted.loss, made.loss);
  EXPECT_EQ(wanted.gradient_norm, made.gradient_norm);
  EXPECT_EQ(cpu.gradients(), gpu.gradients());
  EXPECT_LE(made.peak_bytes, gpu.prediction().peak_bytes);
  return made;
}

}  // namespace garonne::exec
