// Mistakes that the GPU's device could make, made by the fake runtime in its place: each is seen in
// the result, in what the runtime complains about, or in what is left at the end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <future>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cuda_toy.hpp"
#include "device/lane_error.hpp"

namespace garonne::device {
namespace {

constexpr std::uint64_t delay_seeds = 6;
constexpr std::uint64_t programs = 2;
constexpr int steps = 40;

struct Prepared {
  ToyProgram program;
  ToyResult reference;
};

std::vector<Prepared> prepared_programs() {
  std::vector<Prepared> all;
  for (std::uint64_t number = 0; number < programs; ++number) {
    const ToyProgram program = make_toy_program(200 + number, steps);
    all.push_back({program, toy_reference(program)});
  }
  return all;
}

FakeCudaSettings late(std::uint64_t seed) {
  FakeCudaSettings settings;
  settings.delay_seed = seed;
  settings.wait_values = seed % 3 != 0;
  return settings;
}

// The first one is not late.
FakeCudaSettings late_streams(int turn) {
  FakeCudaSettings settings;
  if (turn > 0) settings.delay_seed = static_cast<std::uint64_t>(turn);
  return settings;
}

TEST(CudaToys, GiveTheReferencesBitsHoweverLateStreamsAre) {
  for (const Prepared& each : prepared_programs()) {
    for (std::uint64_t seed = 0; seed < delay_seeds; ++seed) {
      FakeCudaRuntime runtime(late(seed));
      CudaSettings settings;
      settings.communication_streams = seed % 4 == 1;
      settings.synchronous = seed % 6 == 5;
      ASSERT_EQ(problem_of_cuda_toy(each.program, each.reference, runtime, settings), "") << seed;
      EXPECT_GT(runtime.kernels(), 3) << "something ran on the device";
      EXPECT_GT(runtime.calls().at("cudaMemcpyAsync"), 2);
    }
  }
}

// What follows races on purpose, which the thread sanitizer rightly forbids.
#ifndef __SANITIZE_THREAD__

struct Row {
  CudaFault fault;
  const char* name;
  const char* found_by;  // part of the problem; empty: other bits
};

// The first problem that any program and seed shows; empty where none does.
std::string first_problem(const std::vector<Prepared>& all, CudaFault fault, int& runs) {
  for (std::uint64_t seed = 0; seed < delay_seeds; ++seed) {
    for (const Prepared& each : all) {
      FakeCudaSettings settings = late(seed);
      settings.fault = fault;
      FakeCudaRuntime runtime(settings);
      ++runs;
      const std::string problem = problem_of_cuda_toy(each.program, each.reference, runtime);
      if (!problem.empty()) return problem;
    }
  }
  return "";
}

TEST(CudaFaults, AllAreFound) {
  const std::vector<Row> rows = {
      {CudaFault::DroppedFork, "a stream does not wait for Compute", ""},
      {CudaFault::DroppedJoin, "Compute does not wait for a stream", ""},
      {CudaFault::DroppedRecord, "an event is waited for before it is recorded", "not recorded"},
      {CudaFault::EarlyEvent, "the host does not wait for an event", ""},
      {CudaFault::EarlyStream, "the end does not wait for streams", "work"},
      {CudaFault::DefaultStream, "work goes to the default stream", "default stream"},
      {CudaFault::DestroyedEvent, "an event is used that was destroyed", "destroyed event"},
      {CudaFault::DestroyedStream, "a stream is used that was destroyed", "destroyed stream"},
      {CudaFault::LeakedEvent, "an event is not destroyed", "are left"},
      {CudaFault::LeakedStream, "a stream is not destroyed", "are left"},
      {CudaFault::LeakedMemory, "memory is not freed", "are left"},
      {CudaFault::PageableCopy, "a copy's host memory is not pinned", "not pinned"},
      {CudaFault::OtherThread, "a thread does not say for which device", "cudaSetDevice"},
  };
  const std::vector<Prepared> all = prepared_programs();
  std::printf("%-46s %5s  %s\n", "fault", "runs", "found by");
  for (const Row& row : rows) {
    int runs = 0;
    const std::string problem = first_problem(all, row.fault, runs);
    std::printf("%-46s %5d  %s\n", row.name, runs, problem.c_str());
    EXPECT_NE(problem, "") << row.name;
    EXPECT_NE(problem.find(row.found_by), std::string::npos) << row.name << ": " << problem;
  }
}

// A thread that is held: the copy after it is done only where nothing waits for the thread.
TEST(CudaFaults, AStreamThatDoesNotWaitForAThreadIsFound) {
  for (const CudaFault fault : {CudaFault::None, CudaFault::DroppedValue}) {
    const bool sound = fault == CudaFault::None;
    std::promise<void> gate;
    FakeCudaRuntime runtime({.fault = fault});
    CudaDevice device(runtime, {.longest_wait_seconds = sound ? 0.05 : 60.0});
    const Span block = device.reserve(Tier::Device, 4096).allocate(400, "block");
    const Span staged = device.reserve(Tier::Host, 4096).allocate(400, "staged");
    const std::array read = {device.run(
        Lane::DiskRead, [open = gate.get_future().share()] { open.wait(); }, "read")};
    const Mark in = device.copy(Lane::CopyIn, block, staged, "in", read);
    if (sound) {
      EXPECT_THROW(device.wait(in), LaneError);
    } else {
      EXPECT_NO_THROW(device.wait(in)) << "the fault is there, and seen";
      std::printf("%-46s %5d  done before the thread\n", "a stream does not wait for a thread", 1);
    }
    gate.set_value();
  }
}

// What the test below finds: a failure that nobody looks at is not told by its name.
TEST(CudaFaults, ACodeThatNobodyLooksAtIsNoticed) {
  const Prepared each = prepared_programs().front();
  FakeCudaRuntime sound;
  ASSERT_EQ(problem_of_cuda_toy(each.program, each.reference, sound), "");
  int calls = 0;
  for (const auto& [call, count] : sound.calls()) {
    // A caller that goes on without memory dies of it here.
    if (call == "cudaMalloc" || call == "cudaHostAlloc") continue;
    FakeCudaRuntime runtime;
    runtime.fail(call, 0, true);
    const std::string problem = problem_of_cuda_toy(each.program, each.reference, runtime);
    EXPECT_EQ(problem.find(call + ": cudaError999"), std::string::npos) << problem;
    ++calls;
  }
  std::printf("%-46s %5d  its name is not told\n", "a code that nobody looks at", calls);
}

#endif

// Where the caller looks at what calls say, each that fails is told with its name. Where it does
// not, the failure comes to nothing or to something else.
TEST(CudaFaults, EachCallThatFailsIsToldWithLaneAndActivity) {
  const Prepared each = prepared_programs().front();
  // What it asks, and how often, is a matter of timing: what several runs have seen.
  constexpr int turns = 20;
  std::map<std::string, int> calls;
  for (int turn = 0; turn < turns; ++turn) {
    FakeCudaRuntime sound(late_streams(turn));
    ASSERT_EQ(problem_of_cuda_toy(each.program, each.reference, sound), "");
    for (const auto& [call, count] : sound.calls()) calls[call] = std::max(calls[call], count);
  }
  std::set<std::string> told;
  int failures = 0;
  for (const auto& [call, count] : calls) {
    // The first calls of a kind, one of the middle, the last.
    for (const int number : std::set<int>{0, 1, count / 2, count - 1}) {
      if (number >= count) continue;
      for (int turn = 0; turn < turns; ++turn) {
        FakeCudaRuntime runtime(late_streams(turn));
        runtime.fail(call, number);
        const std::string problem = problem_of_cuda_toy(each.program, each.reference, runtime);
        if (runtime.failures_left() > 0) continue;  // so many there were not this time
        EXPECT_NE(problem.find(" lane, "), std::string::npos) << call << " " << number << problem;
        EXPECT_NE(problem.find(call + ": cudaError999: made up"), std::string::npos)
            << call << " " << number << ": " << problem;
        EXPECT_EQ(runtime.live(), FakeCudaCounts()) << call << " " << number << " leaves something";
        told.insert(call);
        ++failures;
        break;
      }
    }
  }
  std::printf("%zu calls of the runtime, %d failures, all told\n", told.size(), failures);
  EXPECT_EQ(told.size(), calls.size());
  EXPECT_GE(told.size(), 21U);
  EXPECT_GE(failures, 40);
}

}  // namespace
}  // namespace garonne::device
