// Steps of several ranks that are recorded and carried out as graphs, over the made-up NCCL between
// real processes: the bits are those of plain steps and of CPUs, and all ranks decide alike.
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/lane_error.hpp"
#include "exec/nccl_ranks.hpp"
#include "nn/compute_session.hpp"
#include "plan/program/passes_overlap.hpp"

namespace garonne::exec {
namespace {

double rate_of(std::int64_t number) {
  return 1e-2 / static_cast<double>(number);
}

class NcclGraphs : public testing::Test {
 protected:
  NcclGraphs() : session_(dist::Session::start()), thread_(session_) {
    garonne::test::use_threads(1);
  }

  // Whether so on any rank.
  bool anywhere(bool here) {
    return session_.all_reduce_max(std::vector<std::int64_t>{here ? 1 : 0})[0] > 0;
  }
  bool everywhere(bool here) { return !anywhere(!here); }

  dist::Session session_;
  dist::CommunicationThread thread_;
};

TEST_F(NcclGraphs, HaveTheBitsOfPlainStepsAndOfCpus) {
  struct Row {
    const char* name;
    Sharing sharing;
    Setting setting;
  };
  std::uint64_t seed = 0;
  for (const Row& row :
       std::vector<Row>{{"data", {}, {}},
                        {"ZeRO 1", {.zero = 1}, {Precision::BFloat16, "full"}},
                        {"ZeRO 2", {.zero = 2}, {}},
                        {"ZeRO 3", {.zero = 3}, {Precision::BFloat16, "selective"}},
                        {"tensor", {.axis = Axis::Tensor}, {Precision::Float32, "full"}},
                        {"overlap", {.axis = Axis::Tensor, .overlaps = true}, {}},
                        {"pipeline", {.axis = Axis::Pipeline}, {}},
                        {"gpipe",
                         {.axis = Axis::Pipeline, .schedule = "gpipe"},
                         {Precision::BFloat16, "full"}}}) {
    // Heads are dealt out whole.
    if (row.sharing.axis == Axis::Tensor && 4 % session_.size() != 0) continue;
    ++seed;
    SCOPED_TRACE(row.name);
    SharedRanks shared(session_, thread_, row.sharing);
    const auto cpu = shared.make_cpu(row.setting);
    const auto gpu = shared.make_gpu(
        row.setting, {.delay_seed = 10 * seed + static_cast<std::uint64_t>(session_.rank())});
    EXPECT_EQ(plan::passes_overlap(gpu->program()), row.sharing.overlaps);
    Executor& executor = gpu->use_graphs(GraphUse::Always);
    std::int64_t plain_peak = 0;
    for (std::int64_t number = 1; number <= 5; ++number) {
      SCOPED_TRACE(number);
      const StepOutputs wanted = cpu->step(number, rate_of(number));
      const StepOutputs made = gpu->step(number, rate_of(number));
      EXPECT_EQ(wanted.loss, made.loss);
      EXPECT_EQ(wanted.gradient_norm, made.gradient_norm);
      EXPECT_EQ(cpu->state(), gpu->state());
      EXPECT_EQ(gpu->device().launches, number <= 2 ? 0 : number - 2);
      EXPECT_EQ(executor.take_note().find("one CUDA graph") != std::string::npos, number == 3);
      if (number == 2) plain_peak = made.peak_bytes;
      if (number > 2) {
        EXPECT_EQ(made.peak_bytes, plain_peak);
      }
    }
    EXPECT_EQ(gpu->device().moved_blocks, 0);
    EXPECT_EQ(gpu->runtime().violations(), std::vector<std::string>());
    EXPECT_EQ(shared.violations(), std::vector<std::string>());
    shared.drop_nccl();
  }
}

// Kernels of NCCL and of sums are in the graph: nothing is put beside it.
TEST_F(NcclGraphs, AStepIsOneLaunchAndOneWait) {
  SharedRanks shared(session_, thread_, {.zero = 3});
  const auto gpu = shared.make_gpu({});
  gpu->use_graphs(GraphUse::Always);
  for (std::int64_t number = 1; number <= 3; ++number) gpu->step(number);
  const auto before = gpu->runtime().calls();
  const auto nccl_before = shared.nccl().calls();
  gpu->device().waits = 0;
  gpu->step(4);
  EXPECT_EQ(gpu->device().waits, 1);
  auto after = gpu->runtime().calls();
  for (const char* const call : {"cudaGraphLaunch", "cudaEventRecord"})
    EXPECT_EQ(after[call] - before.at(call), 1) << call;
  for (const char* const call :
       {"cudaStreamWaitEvent", "cudaMemcpyAsync", "cudaStreamBeginCapture"})
    EXPECT_EQ(after[call], before.at(call)) << call;
  auto nccl_after = shared.nccl().calls();
  for (const char* const call : {"ncclSend", "ncclRecv", "ncclAllGather"}) {
    const auto found = nccl_before.find(call);
    EXPECT_EQ(nccl_after[call], found == nccl_before.end() ? 0 : found->second) << call;
  }
  shared.drop_nccl();
}

// What one rank is refused while it records none records, and all say whose refusal it is.
TEST_F(NcclGraphs, WhatOneRankCannotRecordNoneDoes) {
  for (const char* const call :
       {"cudaStreamWaitEvent", "cudaEventRecord", "cudaStreamEndCapture", "cudaGraphInstantiate"}) {
    for (int failing = 0; failing < session_.size(); ++failing) {
      SCOPED_TRACE(call);
      SharedRanks shared(session_, thread_, {.zero = 2});
      const auto cpu = shared.make_cpu({});
      const auto gpu = shared.make_gpu({});
      Executor& executor = gpu->use_graphs(GraphUse::Auto);
      for (std::int64_t number = 1; number <= 5; ++number) {
        if (number == 3 && session_.rank() == failing) gpu->runtime().fail(call, 7);
        if (std::string(call).find("Graph") != std::string::npos ||
            std::string(call).find("Capture") != std::string::npos) {
          if (number == 3 && session_.rank() == failing) gpu->runtime().fail(call, 0);
        }
        const double wanted = cpu->step(number).loss;
        EXPECT_EQ(wanted, gpu->step(number).loss);
        const std::string note = executor.take_note();
        EXPECT_EQ(note.find("none: a step cannot be recorded") != std::string::npos, number == 3)
            << note;
        if (number == 3) {
          EXPECT_NE(note.find(call), std::string::npos) << note;
          EXPECT_NE(note.find("(rank " + std::to_string(failing) + ")"), std::string::npos) << note;
        }
      }
      EXPECT_EQ(cpu->state(), gpu->state());
      EXPECT_EQ(gpu->device().launches, 0);
      EXPECT_EQ(shared.violations(), std::vector<std::string>());
      shared.drop_nccl();
    }
  }
}

TEST_F(NcclGraphs, WhereAGraphIsAskedForAllRanksEndAlike) {
  SharedRanks shared(session_, thread_, {});
  const auto gpu = shared.make_gpu({});
  gpu->use_graphs(GraphUse::Always);
  gpu->step(1);
  gpu->step(2);
  const int failing = session_.size() - 1;
  if (session_.rank() == failing) gpu->runtime().fail("cudaGraphInstantiate", 0);
  try {
    gpu->step(3);
    ADD_FAILURE() << "a graph that was asked for was left out";
  } catch (const dist::AgreedError& error) {
    EXPECT_EQ(error.code(), ExitCode::Usage);
    const std::string text = error.what();
    EXPECT_NE(text.find("run.graphs"), std::string::npos) << text;
    EXPECT_NE(text.find("cudaGraphInstantiate"), std::string::npos) << text;
    EXPECT_NE(text.find("(rank " + std::to_string(failing) + ")"), std::string::npos) << text;
  }
  shared.drop_nccl();
}

// A block that one rank keeps moves its step; the graphs of the others belong to the old one.
TEST_F(NcclGraphs, WhereOneTierIsAnotherAllRecordAnew) {
  SharedRanks shared(session_, thread_, {.zero = 1});
  const auto cpu = shared.make_cpu({});
  const auto gpu = shared.make_gpu({}, {}, 4096);
  Executor& executor = gpu->use_graphs(GraphUse::Always);
  std::vector<at::Tensor> kept;
  for (std::int64_t number = 1; number <= 7; ++number) {
    EXPECT_EQ(cpu->step(number).loss, gpu->step(number).loss) << number;
    const bool recorded = executor.take_note().find("one CUDA graph") != std::string::npos;
    EXPECT_EQ(recorded, number == 3 || number == 5) << number;
    if (number == 4 && session_.rank() == 0) {
      const DeviceScope scope(gpu->tier());
      kept.push_back(at::empty({4096}, at::kByte));
    }
  }
  EXPECT_EQ(cpu->state(), gpu->state());
  EXPECT_EQ(gpu->device().moved_blocks, 0);
  EXPECT_EQ(shared.violations(), std::vector<std::string>());
  kept.clear();
  shared.drop_nccl();
}

// Where one rank is bound by launches all record; where none is, none does. Whether that saved time
// is decided by the slowest, so that notes are alike.
TEST_F(NcclGraphs, WhetherTimeIsSavedIsDecidedAlike) {
  for (const double share : {0.0, 2.0}) {
    SharedRanks shared(session_, thread_, {});
    const auto gpu = shared.make_gpu({});
    // Ranks with other shares than the first: that it is an agreement shows.
    Executor& executor = gpu->use_graphs(GraphUse::Auto, session_.rank() == 0 ? 2.0 : share);
    bool graphs = false;
    for (std::int64_t number = 1; number <= 7; ++number) {
      gpu->step(number);
      const int launches = gpu->device().launches;
      EXPECT_TRUE(everywhere(launches == 0) || everywhere(launches > 0)) << number;
      graphs = graphs || launches > 0;
      const std::string note = executor.take_note();
      if (number == 5 && share == 0) {
        const bool dropped = note.find("dropped") != std::string::npos;
        EXPECT_TRUE(everywhere(dropped) || everywhere(!dropped)) << note;
      }
    }
    EXPECT_EQ(graphs, share == 0);
    shared.drop_nccl();
  }
}

// Over MPI steps stay as they are, which is said, and is an error where graphs are asked for.
TEST_F(NcclGraphs, StepsOverMpiArePlain) {
  SharedRanks shared(session_, thread_, {.over_mpi = true});
  const auto gpu = shared.make_gpu({});
  EXPECT_EQ(graph_obstacle(gpu->program(), "nccl"), "");
  const std::string said = "MPI (grid.transport)";
  const std::string note = gpu->use_graphs(GraphUse::Auto).take_note();
  EXPECT_NE(note.find(said), std::string::npos) << note;
  try {
    gpu->use_graphs(GraphUse::Always);
    ADD_FAILURE() << "graphs over MPI";
  } catch (const dist::AgreedError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("run.graphs"), std::string::npos) << text;
    EXPECT_NE(text.find(said), std::string::npos) << text;
  }
  shared.drop_nccl();
}

// Mistakes that executor and runtime could make, in their place.
TEST_F(NcclGraphs, MistakesAreSeen) {
  struct Row {
    device::CudaFault fault;
    const char* name;
    bool agree = true;
  };
  for (const Row& row : std::vector<Row>{
           {device::CudaFault::DroppedFork, "a lane does not wait for Compute"},
           {device::CudaFault::AskingInCapture, "an event is asked in the capture"},
           {device::CudaFault::AllocatingInCapture, "memory is allocated in the capture"},
           {device::CudaFault::None, "ranks decide each for itself", false}}) {
    SharedRanks shared(session_, thread_, {.axis = Axis::Pipeline, .agree = row.agree});
    const auto cpu = shared.make_cpu({});
    const auto gpu = shared.make_gpu(
        {}, {.delay_seed = 3 + static_cast<std::uint64_t>(session_.rank()), .fault = row.fault});
    std::string problem;
    try {
      gpu->use_graphs(row.agree ? GraphUse::Always : GraphUse::Auto);
      for (std::int64_t number = 1; number <= 3; ++number) {
        if (number == 3 && !row.agree && session_.rank() == 0)
          gpu->runtime().fail("cudaGraphInstantiate", 0);
        const double wanted = cpu->step(number).loss;
        if (wanted != gpu->step(number).loss) problem = "other bits";
      }
      if (cpu->state() != gpu->state()) problem = "other bits";
    } catch (const Error& error) {
      problem = error.what();
    }
    for (const std::string& violation : shared.violations()) problem = violation;
    if (session_.rank() == 0) std::printf("%-46s %s\n", row.name, problem.substr(0, 100).c_str());
    EXPECT_TRUE(anywhere(!problem.empty())) << row.name;
    shared.drop_nccl();
  }
}

}  // namespace
}  // namespace garonne::exec
