// Steps on a GPU's device over the made-up runtime: the host puts kernels, copies and waits on
// streams that are late, and everything has the bits of the CPU (cuda_ranks.hpp).
#include "exec/cuda_ranks.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/lane_error.hpp"
#include "dist/session.hpp"
#include "nn/compute_session.hpp"
#include "nn/gpt/llama.hpp"

namespace garonne::exec {
namespace {

// Two queries to each key and value.
nn::Model small_llama(const nn::Declaration& declaration) {
  return nn::make_llama({2, 32, 4, 2, 48, text_sequence, text_vocabulary}, text_batch, declaration);
}

class CudaExecutor : public testing::TestWithParam<std::uint64_t> {
 protected:
  static device::FakeCudaSettings late() { return {.delay_seed = GetParam()}; }
};

TEST_P(CudaExecutor, StepsHaveTheBitsOfTheCpu) {
  for (const Setting& setting :
       {Setting{}, Setting{Precision::BFloat16, "full"}, Setting{Precision::Float64, "selective"},
        Setting{Precision::Float32, "full", dropping_text_model},
        Setting{Precision::Float32, "keep-all", small_llama},
        Setting{Precision::BFloat16, "selective", small_llama}}) {
    SCOPED_TRACE(setting.plan);
    CpuRank cpu(setting);
    GpuRank gpu(setting, late());
    EXPECT_EQ(cpu.state(), gpu.state());
    for (std::int64_t number = 1; number <= 2; ++number) {
      const StepOutputs made = same_steps(cpu, gpu, number);
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

// Blocks are handed out in the order of the Program, so that each step finds the places of the one
// before it, with graphs as without.
TEST(CudaExecutors, TheTierReachesNoFurtherFromTheSecondStepOn) {
  for (const char* plan : {"keep-all", "full", "selective"}) {
    for (const GraphUse use : {GraphUse::Never, GraphUse::Always}) {
      SCOPED_TRACE(plan);
      GpuRank gpu({Precision::BFloat16, plan});
      gpu.use_graphs(use);
      std::int64_t reach = 0;
      for (std::int64_t number = 1; number <= 6; ++number) {
        gpu.step(number);
        gpu.evaluate();
        if (number == 2) reach = gpu.reach_bytes();
        if (number > 2) {
          EXPECT_EQ(gpu.reach_bytes(), reach) << number;
        }
      }
      EXPECT_GT(reach, 0);
    }
  }
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
