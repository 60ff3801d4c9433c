// What a profiler is told of steps on a GPU: profiler_range_nvtx.cpp in the place of the source
// that builds without CUDA have, and nvtx_recorder.cpp in the place of a profiler.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "dist/session.hpp"
#include "exec/cuda_ranks.hpp"
#include "nn/compute_session.hpp"

namespace garonne::exec {
namespace {

// Names of ranges in the order in which they begin, with a blank before it for each range around.
std::vector<std::string> take_ranges() {
  // NVTX loads it at the first range.
  void* const library = dlopen(std::getenv("NVTX_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return {"nobody listens"};
  const auto take = reinterpret_cast<const char* (*)()>(dlsym(library, "take_recorded_ranges"));
  std::istringstream lines(take());
  std::vector<std::string> ranges;
  std::string depth;
  for (std::string line; std::getline(lines, line);) {
    if (line == "pop") {
      if (depth.empty()) return {"a range ends that never began"};
      depth.pop_back();
    } else {
      ranges.push_back(depth + line.substr(std::string("push ").size()));
      depth += ' ';
    }
  }
  if (!depth.empty()) return {"a range never ends"};
  return ranges;
}

std::vector<std::string> ranges_of_step(const plan::Program& program, const std::string& step) {
  std::vector<std::string> ranges;
  if (!step.empty()) ranges.push_back(step);
  for (const plan::Instruction& instruction : program.instructions)
    ranges.push_back((step.empty() ? "" : " ") + plan::describe(instruction));
  return ranges;
}

TEST(ProfilerRanges, AStepAndEachOfItsInstructionsAreOne) {
  GpuRank gpu({});
  for (std::int64_t number = 1; number <= 2; ++number) {
    gpu.step(number);
    EXPECT_EQ(take_ranges(), ranges_of_step(gpu.program(), "step " + std::to_string(number)));
  }
}

TEST(ProfilerRanges, AGraphIsOneAndItsInstructionsWhereTheyAreRecorded) {
  GpuRank gpu({});
  gpu.use_graphs(GraphUse::Always);
  gpu.step(1);
  gpu.step(2);
  (void)take_ranges();
  gpu.step(3);
  std::vector<std::string> wanted = ranges_of_step(gpu.program(), "");
  wanted.emplace_back("step 3, as a graph");
  EXPECT_EQ(take_ranges(), wanted);
  gpu.step(4);
  EXPECT_EQ(take_ranges(), std::vector<std::string>{"step 4, as a graph"});
}

// What ends a step with an error ends its ranges.
TEST(ProfilerRanges, EndWithTheStepThatFails) {
  GpuRank gpu({});
  gpu.step(1, 1e30);
  (void)take_ranges();
  EXPECT_THROW(gpu.step(2), dist::AgreedError);
  EXPECT_EQ(take_ranges().front(), "step 2");
}

}  // namespace
}  // namespace garonne::exec
