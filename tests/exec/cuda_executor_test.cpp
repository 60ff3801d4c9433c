// Steps on a GPU's device over the made-up runtime: the host puts kernels, copies and waits on
// streams that are late, and everything has the bits of the CPU. Kernels are the host's here, so
// each one runs when it is put: Compute has come to it by then.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/cpu_device.hpp"
#include "device/cuda_device.hpp"
#include "device/fake_cuda_runtime.hpp"
#include "device/fixed_arena.hpp"
#include "device/lane_error.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "exec/host_access.hpp"
#include "exec/token_batch.hpp"
#include "nn/compute_session.hpp"
#include "nn/gpt/gpt.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t batch = 2;
constexpr std::int64_t sequence = 24;
constexpr std::int64_t vocabulary = 61;
constexpr int micro_batches = 3;
constexpr std::int64_t pinned_bytes = std::int64_t{256} << 10;
constexpr int nan_pattern = 0xFF;

// The device, whose kernels are the host's: what asks where they go waits until Compute is there.
class HostKernels final : public device::Device {
 public:
  explicit HostKernels(device::CudaDevice& device) : device_(device) {}

  DeviceKind kind() const override { return device_.kind(); }
  device::MemoryFacts memory() const override { return device_.memory(); }
  Queue queue(Lane lane) const override {
    if (lane != Lane::Compute) return device_.queue(lane);
    catch_up();
    return {DeviceKind::Emulated, nullptr, 0};
  }
  device::Mark launched(Lane lane, const std::string& activity) override {
    return device_.launched(lane, activity);
  }
  device::Mark mark(Lane lane) override { return device_.mark(lane); }
  void order(Lane later, device::Mark earlier) override {
    device_.order(later, earlier);
    if (later == Lane::Compute) late_ = true;
  }
  void wait(device::Mark mark) override {
    ++waits;
    device_.wait(mark);
  }
  bool done(device::Mark mark) override { return device_.done(mark); }
  device::Mark timed_mark(Lane lane) override { return device_.timed_mark(lane); }
  double seconds(device::Mark from, device::Mark to) const override {
    return device_.seconds(from, to);
  }
  void forget_times() override { device_.forget_times(); }
  void end() noexcept override { device_.end(); }

  // What follows another lane has to be there before the host computes with it.
  void catch_up() const {
    if (!std::exchange(late_, false)) return;
    device_.wait(device_.mark(Lane::Compute));
  }

  int waits = 0;  // of the host, asked for by others than the kernels

 private:
  device::Mark put_copy(Lane lane, device::Span to, device::Span from, std::string activity,
                        std::span<const device::Mark> after) override {
    return device_.copy(lane, to, from, std::move(activity), after);
  }
  device::Mark put_run(Lane lane, std::function<void()> work, std::string activity,
                       std::span<const device::Mark> after) override {
    return device_.run(lane, std::move(work), std::move(activity), after);
  }

  device::CudaDevice& device_;
  mutable bool late_ = false;
};

struct Setting {
  Precision precision = Precision::Float32;
  std::string plan = "keep-all";
};

// What a step on either device needs, and what came of it.
class Rank {
 public:
  explicit Rank(const Setting& setting, std::int64_t granularity) {
    nn::Declaration declaration;
    declaration.precision = setting.precision;
    declaration.threads = 2;
    declaration.granularity = granularity;
    precision_ = setting.precision;
    model_ = nn::make_gpt({2, 32, 4, sequence, vocabulary, 0.25}, batch, declaration);
    RunConfig config;
    config.optimizer.weight_decay = 0.1;
    optimizer_ = optim::make_optimizer(config);
    plan::StepShape step;
    step.granularity = granularity;
    step.micro_batches = micro_batches;
    step.element_bytes.parameter = compute_bytes(setting.precision);
    step.element_bytes.master = has_master(setting.precision) ? state_bytes(setting.precision) : 0;
    step.element_bytes.gradient = step.element_bytes.state = state_bytes(setting.precision);
    step.optimizer_states = optimizer_->states();
    step.data_group = {0};
    for (const auto& policy : plan::stage_solvers()) {
      if (policy.name != setting.plan) continue;
      const auto family = policy.schedules(model_.graph);
      program_ = plan::make_training_program(
          model_.graph, step, plan::same_for_all(family[family.size() / 2], micro_batches));
    }
    evaluation_ = plan::make_forward_program(model_.graph, step, model_.graph.loss);
    prediction_ = plan::replay(program_);
  }
  virtual ~Rank() = default;

  StepOutputs step(std::int64_t number, double learning_rate = 1e-2) {
    return run(program_, number, true, learning_rate);
  }
  double evaluate() { return run(evaluation_, 1, false, 0).report.at(0); }

  // All that lasts, on the host.
  virtual std::map<std::string, std::vector<double>> state() = 0;
  const std::map<int, std::vector<double>>& gradients() const { return gradients_; }
  const plan::Program& program() const { return program_; }
  const plan::Prediction& prediction() const { return prediction_; }

  bool watches = true;  // gradients, which are copied for that
  std::function<void()> on_gradient;

 protected:
  virtual Machine machine() = 0;

  StepOutputs run(const plan::Program& program, std::int64_t number, bool training,
                  double learning_rate) {
    Machine machine = this->machine();
    machine.state = &state_;
    machine.products = &products_;
    machine.optimizer = optimizer_.get();
    if (watches) {
      machine.watch_gradient = [this](int parameter, const at::Tensor& gradient) {
        gradients_[parameter] = copy_out(gradient);
        if (on_gradient) on_gradient();
      };
    }
    StepInputs inputs;
    inputs.seed = 5;
    inputs.step = number;
    inputs.training = training;
    inputs.loss_scale = 1.0 / micro_batches;
    inputs.learning_rate = learning_rate;
    inputs.clip_norm = 0.5;
    inputs.load = [number](int micro_batch) {
      return token_batch((number * micro_batches + micro_batch) * batch, batch, sequence,
                         vocabulary);
    };
    Executor executor(model_, program, machine);
    return executor.run(inputs);
  }

  Precision precision_{};
  nn::Model model_;
  nn::Products products_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  plan::Program program_;
  plan::Program evaluation_;
  plan::Prediction prediction_;
  std::map<int, std::vector<double>> gradients_;
  ModelState state_;
};

class CpuRank final : public Rank {
 public:
  explicit CpuRank(const Setting& setting)
      : Rank(setting, cpu_allocation_granularity), tier_(prediction_.peak_bytes) {
    const DeviceScope scope(tier_);
    state_ = initial_state(device_.queue(Lane::Compute), model_, precision_, 11, program_);
  }

  std::map<std::string, std::vector<double>> state() override {
    std::map<std::string, std::vector<double>> all;
    for (const auto& [name, tensor] : state_.buffers) all[name] = copy_out(tensor);
    return all;
  }

 private:
  Machine machine() override {
    Machine machine;
    machine.device = &device_;
    machine.tier = &tier_;
    return machine;
  }

  device::CpuDevice device_;
  DeviceTier tier_;
};

// A tier of exactly the bytes that were predicted.
class GpuRank final : public Rank {
 public:
  explicit GpuRank(const Setting& setting, device::FakeCudaSettings fake = {},
                   device::CudaSettings cuda = {})
      : Rank(setting, cuda_allocation_granularity) {
    fake.host_reaches_device = true;
    runtime_ = std::make_unique<device::FakeCudaRuntime>(fake);
    cuda.longest_wait_seconds = 60;
    cuda_ = std::make_unique<device::CudaDevice>(*runtime_, cuda);
    device_ = std::make_unique<HostKernels>(*cuda_);
    cuda_->reserve(Tier::Host, pinned_bytes);
    // Room for holes, of which small models have many.
    bytes_ = round_up(2 * prediction_.peak_bytes, cuda_allocation_granularity);
    void* memory = nullptr;
    EXPECT_EQ(runtime_->allocate(memory, static_cast<std::size_t>(bytes_)),
              device::CudaStatus::Success);
    memory_ = memory;
    const auto spoil = [](device::Span block) {
      std::memset(block.data, nan_pattern, static_cast<std::size_t>(block.bytes));
    };
    tier_ = std::make_unique<DeviceTier>(
        std::make_shared<device::TierMemory>(
            device::TierSettings{.tier = Tier::Device,
                                 .limit_bytes = prediction_.peak_bytes,
                                 .granularity = cuda_allocation_granularity,
                                 .spoil = spoil},
            std::make_unique<device::FixedArena>(memory, bytes_)),
        DeviceKind::Emulated);
    staging_ = std::make_unique<Staging>(*device_, cuda_->reserved(Tier::Host));
    const DeviceScope scope(*tier_);
    state_ = initial_state(device_->queue(Lane::Compute), model_, precision_, 11, program_,
                           staging_.get());
    // Its kernel was the host's, and did not wait for the copies.
    device_->catch_up();
    refresh_compute_copies(state_);
  }

  ~GpuRank() override {
    state_ = {};
    staging_.reset();
    cuda_->end();  // before its memory goes
    static_cast<void>(runtime_->free(memory_));
  }

  std::map<std::string, std::vector<double>> state() override {
    std::map<std::string, std::vector<double>> all;
    for (const auto& [name, tensor] : state_.buffers) all[name] = copy_out(tensor, *staging_);
    return all;
  }

  device::FakeCudaRuntime& runtime() { return *runtime_; }
  HostKernels& device() { return *device_; }
  const DeviceTier& tier() const { return *tier_; }

 private:
  Machine machine() override {
    Machine machine;
    machine.device = device_.get();
    machine.tier = tier_.get();
    machine.staging = staging_.get();
    return machine;
  }

  std::unique_ptr<device::FakeCudaRuntime> runtime_;
  std::unique_ptr<device::CudaDevice> cuda_;
  std::unique_ptr<HostKernels> device_;
  std::int64_t bytes_ = 0;
  void* memory_ = nullptr;
  std::unique_ptr<DeviceTier> tier_;
  std::unique_ptr<Staging> staging_;
};

class CudaExecutor : public testing::TestWithParam<std::uint64_t> {
 protected:
  static device::FakeCudaSettings late() { return {.delay_seed = GetParam()}; }
};

TEST_P(CudaExecutor, StepsHaveTheBitsOfTheCpu) {
  for (const Setting& setting : {Setting{}, Setting{Precision::BFloat16, "full"},
                                 Setting{Precision::Float64, "selective"}}) {
    SCOPED_TRACE(setting.plan);
    CpuRank cpu(setting);
    GpuRank gpu(setting, late());
    EXPECT_EQ(cpu.state(), gpu.state());
    for (std::int64_t number = 1; number <= 2; ++number) {
      const StepOutputs wanted = cpu.step(number);
      const StepOutputs made = gpu.step(number);
      EXPECT_EQ(wanted.loss, made.loss);
      EXPECT_EQ(wanted.gradient_norm, made.gradient_norm);
      EXPECT_EQ(cpu.gradients(), gpu.gradients());
      EXPECT_LE(made.peak_bytes, gpu.prediction().peak_bytes);
      EXPECT_GT(made.peak_bytes, 0);
    }
    EXPECT_EQ(cpu.state(), gpu.state());
    EXPECT_EQ(cpu.evaluate(), gpu.evaluate());
    EXPECT_EQ(gpu.runtime().violations(), std::vector<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CudaExecutor, testing::Range<std::uint64_t>(1, 4));

TEST(CudaExecutors, TheHostWaitsForTheReportAndTheEndOnly) {
  GpuRank gpu({});
  gpu.watches = false;
  gpu.step(1);
  gpu.device().waits = 0;
  gpu.step(2);
  EXPECT_EQ(gpu.device().waits, 3) << "for the loss, the norm and the last event";
}

TEST(CudaExecutors, SecondsAreTheDevices) {
  GpuRank gpu({});
  const StepOutputs outputs = gpu.step(1);
  ASSERT_EQ(outputs.measurements.size(), gpu.program().instructions.size());
  for (const plan::Measurement& measured : outputs.measurements) EXPECT_GE(measured.seconds, 0);
}

TEST(CudaExecutors, WhatIsNotFiniteIsSaidAndNothingIsUpdated) {
  CpuRank cpu({});
  GpuRank gpu({});
  // So long a step that the next loss is no number.
  cpu.step(1, 1e30);
  gpu.step(1, 1e30);
  const auto before = gpu.state();
  std::vector<std::string> said;
  for (Rank* rank : std::vector<Rank*>{&cpu, &gpu}) {
    try {
      rank->step(2);
      ADD_FAILURE() << "a step without a finite loss was taken";
    } catch (const dist::AgreedError& error) {
      said.emplace_back(error.what());
    }
  }
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[0], said[1]);
  EXPECT_EQ(cpu.state(), before);
}

TEST(CudaExecutors, AFailureIsToldByItsInstructionWhereEachIsWaitedFor) {
  GpuRank gpu({}, {}, {.synchronous = true});
  gpu.step(1);
  gpu.runtime().fail("cudaGetLastError", 3);
  try {
    gpu.step(2);
    ADD_FAILURE() << "a kernel that was refused passed for one that ran";
  } catch (const device::LaneError& error) {
    const std::string third = plan::describe(gpu.program().instructions[3]);
    EXPECT_NE(std::string(error.what()).find(third), std::string::npos) << error.what();
  }
}

TEST(CudaExecutors, WhatLibrariesThrowIsToldByItsInstruction) {
  GpuRank gpu({});
  gpu.on_gradient = [] { throw std::runtime_error("CUBLAS_STATUS_MADE_UP\nframe #0: 0xdead"); };
  try {
    gpu.step(1);
    ADD_FAILURE() << "what was thrown is lost";
  } catch (const device::LaneError& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ExitCode::Refused);
    EXPECT_NE(text.find("sum-squares gradients"), std::string::npos) << text;
    EXPECT_NE(text.find("CUBLAS_STATUS_MADE_UP"), std::string::npos) << text;
    EXPECT_EQ(text.find("frame"), std::string::npos) << text;
  }
}

TEST(CudaExecutors, ATierWithoutRoomRefusesByTheInstruction) {
  GpuRank gpu({});
  // A tenant that nobody planned.
  const DeviceScope scope(gpu.tier());
  const std::int64_t room = gpu.tier().limit_bytes() - gpu.tier().live_bytes();
  const at::Tensor taken = at::empty({room - 4 * cuda_allocation_granularity}, at::kByte);
  try {
    gpu.step(1);
    ADD_FAILURE() << "more than the budget was handed out";
  } catch (const RefusedError& error) {
    EXPECT_NE(std::string(error.what()).find("of the device tier would pass"), std::string::npos)
        << error.what();
  }
}

// Weights in bfloat16 are made of masters that come by copies, which Compute has to follow.
TEST(CudaExecutors, AJoinThatIsNotMadeIsSeen) {
  const Setting setting{Precision::BFloat16};
  CpuRank cpu(setting);
  const auto wanted = cpu.state();
  int seen = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    GpuRank gpu(setting, {.delay_seed = seed,
                          .longest_delay_seconds = 0.005,
                          .fault = device::CudaFault::DroppedJoin});
    seen += gpu.state() != wanted ? 1 : 0;
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace garonne::exec
