// Steps on a GPU's device over the made-up runtime that are recorded once and carried out as a
// whole: the bits and bytes are those of the CPU and of steps that are not recorded.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/lane_error.hpp"
#include "dist/session.hpp"
#include "exec/cuda_ranks.hpp"
#include "nn/compute_session.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t last_step = 6;

// Another one in each step.
double rate_of(std::int64_t number) {
  return 1e-2 / static_cast<double>(number);
}

class CudaGraphSteps : public testing::TestWithParam<std::uint64_t> {};

TEST_P(CudaGraphSteps, HaveTheBitsOfTheCpu) {
  for (const Setting& setting :
       {Setting{}, Setting{Precision::BFloat16, "full"}, Setting{Precision::Float64, "selective"},
        Setting{Precision::Float32, "full", dropping_text_model},
        Setting{.precision = Precision::BFloat16, .optimizer = "lamb"},
        Setting{.precision = Precision::Float32, .optimizer = "lars"},
        Setting{.precision = Precision::BFloat16, .optimizer = "adafactor"}}) {
    SCOPED_TRACE(setting.plan + " " + setting.optimizer);
    CpuRank cpu(setting);
    cpu.watches = false;
    GpuRank gpu(setting, {.delay_seed = GetParam()});
    Executor& executor = gpu.use_graphs(GraphUse::Always);
    std::int64_t plain_peak = 0;
    for (std::int64_t number = 1; number <= last_step; ++number) {
      SCOPED_TRACE(number);
      const StepOutputs wanted = cpu.step(number, rate_of(number));
      const StepOutputs made = gpu.step(number, rate_of(number));
      EXPECT_EQ(wanted.loss, made.loss);
      EXPECT_EQ(wanted.gradient_norm, made.gradient_norm);
      EXPECT_EQ(cpu.state(), gpu.state());
      EXPECT_EQ(made.measurements.size(), gpu.program().instructions.size());
      if (number == 2) plain_peak = made.peak_bytes;
      EXPECT_EQ(made.peak_bytes, number > 2 ? plain_peak : made.peak_bytes);
      EXPECT_EQ(gpu.device().launches, number <= 2 ? 0 : number - 2);
      const std::string note = executor.take_note();
      EXPECT_EQ(note.find("one CUDA graph") != std::string::npos, number == 3) << note;
      // Between steps the tier is others'.
      if (number % 2 == 0) {
        EXPECT_EQ(cpu.evaluate(), gpu.evaluate());
      }
    }
    EXPECT_EQ(gpu.device().moved_blocks, 0) << "blocks of a graph stay where they were recorded";
    EXPECT_EQ(gpu.runtime().violations(), std::vector<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CudaGraphSteps, testing::Range<std::uint64_t>(1, 4));

// As many calls as it takes to put a graph, and none to put kernels and copies.
TEST(CudaGraphExecutors, AStepIsOneLaunchAndOneWait) {
  GpuRank gpu({});
  gpu.use_graphs(GraphUse::Always);
  for (std::int64_t number = 1; number <= 3; ++number) gpu.step(number);
  const auto before = gpu.runtime().calls();
  gpu.device().waits = 0;
  gpu.step(4);
  const auto after = gpu.runtime().calls();
  EXPECT_EQ(gpu.device().waits, 1);
  for (const auto& [call, count] : after) {
    const auto found = before.find(call);
    const int made = count - (found == before.end() ? 0 : found->second);
    if (call == "cudaGraphLaunch" || call == "cudaEventRecord") {
      EXPECT_EQ(made, 1) << call;
    } else if (call != "cudaEventQuery") {
      EXPECT_EQ(made, 0) << call;
    }
  }
}

TEST(CudaGraphExecutors, WhatIsNotFiniteIsSaidAndNothingIsUpdated) {
  CpuRank cpu({});
  GpuRank gpu({});
  cpu.watches = false;
  gpu.use_graphs(GraphUse::Always);
  // So long a step that the next loss is no number.
  for (std::int64_t number = 1; number <= 4; ++number) {
    const double rate = number == 4 ? 1e30 : 1e-2;
    cpu.step(number, rate);
    gpu.step(number, rate);
  }
  const auto before = gpu.state();
  std::vector<std::string> said;
  for (Rank* rank : std::vector<Rank*>{&cpu, &gpu}) {
    try {
      rank->step(5);
      ADD_FAILURE() << "a step without a finite loss was taken";
    } catch (const dist::AgreedError& error) {
      said.emplace_back(error.what());
    }
  }
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[0], said[1]);
  EXPECT_EQ(gpu.state(), before);
}

// What the runtime refuses while a step is recorded: steps go on without a graph, and that is said.
TEST(CudaGraphExecutors, AStepThatCannotBeRecordedIsTakenWithoutAGraph) {
  for (const char* const call :
       {"cudaMemcpyAsync", "cudaGetLastError", "cudaStreamEndCapture", "cudaGraphInstantiate"}) {
    SCOPED_TRACE(call);
    CpuRank cpu({});
    cpu.watches = false;
    GpuRank gpu({});
    Executor& executor = gpu.use_graphs(GraphUse::Auto);
    for (std::int64_t number = 1; number <= 2; ++number) {
      cpu.step(number);
      gpu.step(number);
    }
    gpu.runtime().fail(call, 0);
    for (std::int64_t number = 3; number <= 4; ++number) {
      EXPECT_EQ(cpu.step(number).loss, gpu.step(number).loss);
      const std::string note = executor.take_note();
      EXPECT_EQ(note.find("none: a step cannot be recorded") != std::string::npos, number == 3)
          << note;
      EXPECT_EQ(note.find(call) != std::string::npos, number == 3) << note;
    }
    EXPECT_EQ(cpu.state(), gpu.state());
    EXPECT_EQ(gpu.device().launches, 0);
  }
}

TEST(CudaGraphExecutors, WhereAGraphIsAskedForAndCannotBeThatIsAnError) {
  GpuRank gpu({});
  gpu.use_graphs(GraphUse::Always);
  gpu.step(1);
  gpu.step(2);
  gpu.runtime().fail("cudaStreamEndCapture", 0);
  try {
    gpu.step(3);
    ADD_FAILURE() << "a graph that was asked for was left out";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "run.graphs");
    EXPECT_NE(std::string(error.what()).find("cudaStreamEndCapture"), std::string::npos);
  }
  CpuRank cpu({});
  EXPECT_THROW(cpu.use_graphs(GraphUse::Always), ConfigError) << "nothing is recorded there";
}

// A block that somebody keeps may lie where the graph works: the step is recorded anew.
TEST(CudaGraphExecutors, WhereTheTierIsAnotherTheStepIsRecordedAnew) {
  CpuRank cpu({});
  cpu.watches = false;
  GpuRank gpu({}, {}, {}, 4096);
  Executor& executor = gpu.use_graphs(GraphUse::Always);
  std::vector<at::Tensor> kept;  // given back before the tier goes
  for (std::int64_t number = 1; number <= 7; ++number) {
    EXPECT_EQ(cpu.step(number).loss, gpu.step(number).loss) << number;
    const bool recorded = executor.take_note().find("one CUDA graph") != std::string::npos;
    EXPECT_EQ(recorded, number == 3 || number == 5) << number;
    if (number == 4) {
      const DeviceScope scope(gpu.tier());
      kept.push_back(at::empty({4096}, at::kByte));
    }
  }
  EXPECT_EQ(cpu.state(), gpu.state());
  EXPECT_EQ(gpu.device().moved_blocks, 0);
}

// Mistakes that the executor could make, in its place.
TEST(CudaGraphExecutors, MistakesAreSeen) {
  struct Row {
    device::CudaFault fault;
    const char* name;
    std::optional<int> at = std::nullopt;
  };
  for (const Row& row : std::vector<Row>{
           {device::CudaFault::DroppedLaunch, "a graph is not carried out"},
           {device::CudaFault::CopyAtCapture, "the numbers of the step are the recorded ones", 0},
           {device::CudaFault::AskingInCapture, "an event is asked in the capture"},
           {device::CudaFault::AllocatingInCapture, "memory is allocated in the capture"}}) {
    CpuRank cpu({});
    cpu.watches = false;
    GpuRank gpu({}, {.fault = row.fault, .fault_at = row.at});
    std::string problem;
    try {
      gpu.use_graphs(GraphUse::Always);
      for (std::int64_t number = 1; number <= 4; ++number) {
        const double wanted = cpu.step(number).loss;
        if (wanted != gpu.step(number).loss) problem = "other bits";
      }
      if (cpu.state() != gpu.state()) problem = "other bits";
    } catch (const Error& error) {
      problem = error.what();
    }
    std::printf("%-46s %s\n", row.name, problem.substr(0, 100).c_str());
    EXPECT_NE(problem, "") << row.name;
  }
}

}  // namespace
}  // namespace garonne::exec
