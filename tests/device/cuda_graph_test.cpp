// Work that the GPU's device records and carries out many times: its bits, what it refuses while it
// records, and mistakes made by the fake runtime in its place.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cuda_toy.hpp"
#include "device/lane_error.hpp"
#include "message_of.hpp"

namespace garonne::device {
namespace {

constexpr std::uint64_t graph_delay_seeds = 6;
constexpr std::uint64_t graph_programs = 3;
constexpr int graph_steps = 40;
constexpr int launches = 3;

struct Recorded {
  ToyProgram program;
  ToyResult reference;
};

std::vector<Recorded> recorded_programs() {
  std::vector<Recorded> all;
  for (std::uint64_t number = 0; number < graph_programs; ++number) {
    const ToyProgram program = on_streams(make_toy_program(300 + number, graph_steps));
    all.push_back({program, toy_reference(program)});
  }
  return all;
}

TEST(CudaGraphs, GiveTheReferencesBitsEachTime) {
  for (const Recorded& each : recorded_programs()) {
    for (std::uint64_t seed = 0; seed < graph_delay_seeds; ++seed) {
      FakeCudaSettings late;
      if (seed > 0) late.delay_seed = seed;
      FakeCudaRuntime runtime(late);
      ASSERT_EQ(problem_of_cuda_graph(each.program, each.reference, runtime, launches), "") << seed;
      EXPECT_EQ(runtime.calls().at("cudaGraphLaunch"), launches);
      EXPECT_EQ(runtime.kernels_run(), launches * runtime.kernels()) << "each one, each time";
      EXPECT_GT(runtime.kernels(), 3);
    }
  }
}

// What follows races on purpose, which the thread sanitizer rightly forbids.
#ifndef __SANITIZE_THREAD__

struct GraphFault {
  CudaFault fault;
  const char* name;
  const char* found_by;  // part of the problem; empty: other bits
};

TEST(CudaGraphFaults, AllAreFound) {
  const std::vector<GraphFault> rows = {
      {CudaFault::DroppedFork, "a stream does not follow into the capture", ""},
      {CudaFault::DroppedJoin, "a stream does not join before the end", "cudaStreamEndCapture"},
      {CudaFault::DroppedRecord, "an event is not recorded", "not recorded"},
      {CudaFault::EarlyCapture, "what is recorded is carried out at once", ""},
      {CudaFault::DroppedLaunch, "a graph is not carried out", "other bits"},
      {CudaFault::LeakedGraph, "a graph is not destroyed", "are left"},
      {CudaFault::DestroyedGraph, "a graph is used that was destroyed", "destroyed graph"},
      {CudaFault::AskingInCapture, "an event is asked while work is recorded", "cudaEventQuery"},
      {CudaFault::AllocatingInCapture, "memory is allocated then", "cudaMalloc"},
      {CudaFault::DefaultStream, "work goes to the default stream", "default stream"},
      {CudaFault::PageableCopy, "a copy's host memory is not pinned", "not pinned"},
  };
  const std::vector<Recorded> all = recorded_programs();
  std::printf("%-46s %5s  %s\n", "fault", "runs", "found by");
  for (const GraphFault& row : rows) {
    int runs = 0;
    std::string problem;
    for (std::uint64_t seed = 0; seed < graph_delay_seeds && problem.empty(); ++seed) {
      for (const Recorded& each : all) {
        FakeCudaRuntime runtime({.delay_seed = seed, .fault = row.fault});
        ++runs;
        problem = problem_of_cuda_graph(each.program, each.reference, runtime, launches);
        if (!problem.empty()) break;
      }
    }
    std::printf("%-46s %5d  %s\n", row.name, runs, problem.c_str());
    EXPECT_NE(problem, "") << row.name;
    EXPECT_NE(problem.find(row.found_by), std::string::npos) << row.name << ": " << problem;
  }
}

#endif

// A copy that is recorded reads its pinned memory each time.
TEST(CudaGraphs, TakeWhatIsInPinnedMemoryWhenTheyAreCarriedOut) {
  FakeCudaRuntime runtime;
  CudaDevice device(runtime, {.longest_wait_seconds = 20});
  const Span block = device.reserve(Tier::Device, 4096).allocate(512, "block");
  const Span in = device.reserve(Tier::Host, 16384).allocate(512, "in");
  const Span out = device.reserved(Tier::Host)->allocate(512, "out");
  device.begin_capture("step");
  device.order(Lane::Compute, device.copy(Lane::CopyIn, block, in, "in"));
  device.copy(Lane::CopyOut, out, block, "out");
  const int graph = device.end_capture("step");
  for (const int value : {3, 7, 250}) {
    std::fill_n(in.data, in.bytes, static_cast<std::byte>(value));
    device.wait(device.launch(graph, "step"));
    EXPECT_EQ(out.data[511], static_cast<std::byte>(value));
  }
  device.drop(graph);
  EXPECT_THROW(device.launch(graph, "step"), InternalError);
  device.close();
  EXPECT_EQ(runtime.violations(), std::vector<std::string>());
  EXPECT_EQ(runtime.live(), FakeCudaCounts());
}

// What cannot be recorded is refused before the runtime sees it; the device goes on without.
TEST(CudaGraphs, RefuseWhatCannotBeRecordedAndGoOn) {
  FakeCudaRuntime runtime;
  CudaDevice device(runtime, {.longest_wait_seconds = 20});
  const Span block = device.reserve(Tier::Device, 4096).allocate(512, "block");
  const Span in = device.reserve(Tier::Host, 16384).allocate(512, "in");
  const std::vector<std::pair<std::string, std::function<void()>>> refused = {
      {"a wait of the host", [&] { device.wait(device.copy(Lane::CopyIn, block, in, "in")); }},
      {"a question how far work is",
       [&] { static_cast<void>(device.done(device.copy(Lane::CopyIn, block, in, "in"))); }},
      {"a timed mark", [&] { device.timed_mark(Lane::Compute); }},
      {"work of a thread",
       [&] {
         device.run(
             Lane::DiskRead, [] {}, "read");
       }},
      {"host work",
       [&] {
         device.run(
             Lane::CopyOut, [] {}, "host work");
       }},
      {"a second capture", [&] { device.begin_capture("again"); }},
  };
  for (const auto& [what, work] : refused) {
    device.begin_capture("step");
    const std::string said = message_of(work);
    EXPECT_NE(said.find(what + " while work is recorded"), std::string::npos) << said;
    device.drop_capture();
    device.wait(device.copy(Lane::CopyIn, block, in, "as before"));
  }
  EXPECT_EQ(runtime.violations(), std::vector<std::string>());
  device.close();
  EXPECT_EQ(runtime.live(), FakeCudaCounts());
}

// A call that fails while work is recorded is told and leaves a device that works.
TEST(CudaGraphs, ACallThatFailsIsToldAndTheDeviceGoesOn) {
  for (const std::string call :
       {"cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaGetLastError",
        "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphDestroy"}) {
    FakeCudaRuntime runtime;
    CudaDevice device(runtime, {.longest_wait_seconds = 20});
    const Span block = device.reserve(Tier::Device, 4096).allocate(512, "block");
    const Span in = device.reserve(Tier::Host, 16384).allocate(512, "in");
    const std::string said = message_of([&] {
      device.begin_capture("step");
      runtime.fail(call, 0);
      device.order(Lane::Compute, device.copy(Lane::CopyIn, block, in, "in"));
      device.launched(Lane::Compute, "a kernel");
      device.end_capture("step");
    });
    EXPECT_NE(said.find(call + ": cudaError999"), std::string::npos) << call << ": " << said;
    device.drop_capture();
    device.wait(device.copy(Lane::CopyIn, block, in, "as before"));
    // Kernels are asked about by the last error.
    EXPECT_NO_THROW(device.wait(device.launched(Lane::Compute, "a plain kernel"))) << call;
    device.close();
    EXPECT_EQ(runtime.live(), FakeCudaCounts()) << call;
  }
}

TEST(CudaGraphs, ADeviceThatEndsDropsThem) {
  FakeCudaRuntime runtime;
  {
    CudaDevice device(runtime, {.longest_wait_seconds = 20});
    device.begin_capture("step");
    device.launched(Lane::Compute, "nothing");
    device.launch(device.end_capture("step"), "step");
    device.begin_capture("a step that nobody ends");
  }
  EXPECT_EQ(runtime.violations(), std::vector<std::string>());
  EXPECT_EQ(runtime.live(), FakeCudaCounts());
}

// The fake refuses what the real runtime does: for who does not go through the device.
TEST(CudaGraphs, TheFakeRefusesWhatTheRealRuntimeRefuses) {
  struct Case {
    const char* name;
    std::function<void(FakeCudaRuntime&, CudaStream, CudaStream, CudaEvent)> work;
    const char* found;  // in what is not forgiven; null: its status says it
  };
  const std::vector<Case> cases = {
      {"cudaMalloc",
       [](FakeCudaRuntime& runtime, CudaStream, CudaStream, CudaEvent) {
         void* memory = nullptr;
         EXPECT_NE(runtime.allocate(memory, 512), CudaStatus::Success);
       },
       "cudaMalloc"},
      {"a query of an event from before",
       [](FakeCudaRuntime& runtime, CudaStream, CudaStream, CudaEvent before) {
         EXPECT_NE(runtime.query_event(before), CudaStatus::Success);
       },
       "cudaEventQuery"},
      {"a wait for an event from before",
       [](FakeCudaRuntime& runtime, CudaStream origin, CudaStream, CudaEvent before) {
         EXPECT_NE(runtime.wait_event(origin, before), CudaStatus::Success);
       },
       "outside"},
      {"a query of the stream",
       [](FakeCudaRuntime& runtime, CudaStream origin, CudaStream, CudaEvent) {
         EXPECT_NE(runtime.query_stream(origin), CudaStatus::Success);
       },
       "cudaStreamQuery"},
      {"a stream that does not join",
       [](FakeCudaRuntime& runtime, CudaStream origin, CudaStream other, CudaEvent before) {
         EXPECT_EQ(runtime.record_event(before, origin), CudaStatus::Success);
         EXPECT_EQ(runtime.wait_event(other, before), CudaStatus::Success);
         runtime.launch(other, [] {});
       },
       nullptr},
  };
  for (const Case& each : cases) {
    FakeCudaRuntime runtime;
    EXPECT_EQ(runtime.set_device(0), CudaStatus::Success);
    CudaStream origin = nullptr;
    CudaStream other = nullptr;
    CudaEvent event = nullptr;
    EXPECT_EQ(runtime.create_stream(origin, 0), CudaStatus::Success);
    EXPECT_EQ(runtime.create_stream(other, 0), CudaStatus::Success);
    EXPECT_EQ(runtime.create_event(event, false), CudaStatus::Success);
    EXPECT_EQ(runtime.record_event(event, origin), CudaStatus::Success);
    while (runtime.query_stream(origin) == CudaStatus::NotReady) {
    }
    EXPECT_EQ(runtime.begin_capture(origin), CudaStatus::Success);
    each.work(runtime, origin, other, event);
    CudaGraph graph = nullptr;
    EXPECT_NE(runtime.end_capture(origin, graph), CudaStatus::Success) << each.name;
    EXPECT_EQ(graph, nullptr);
    const std::vector<std::string> violations = runtime.violations();
    ASSERT_EQ(violations.size(), each.found == nullptr ? 0U : 1U) << each.name;
    if (each.found != nullptr) {
      EXPECT_NE(violations[0].find(each.found), std::string::npos) << violations[0];
    }
    // Nothing is captured any more.
    runtime.launch(origin, [] {});
    while (runtime.query_stream(origin) == CudaStatus::NotReady) {
    }
    EXPECT_EQ(runtime.kernels_run(), 1);
  }
}

}  // namespace
}  // namespace garonne::device
