// How fast a GPU copies, where it does and where something is in the way.
#include "device/gpu_speed.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>

#include "fake_cuda_runtime.hpp"

namespace garonne::device {
namespace {

TEST(GpuSpeedTest, HasSecondsOfAllCopiesAndLeavesNothing) {
  FakeCudaRuntime runtime({.memory_bytes = std::int64_t{1} << 30});
  const auto speed = gpu_speed(runtime, 0);
  ASSERT_TRUE(speed);
  EXPECT_GT(speed->within_seconds, 0);
  EXPECT_GT(speed->in_seconds, 0);
  EXPECT_GT(speed->out_seconds, 0);
  EXPECT_GT(speed->both_seconds, 0);
  EXPECT_EQ(speed->bytes, 8.0 * (1 << 23));
  EXPECT_EQ(runtime.live(), FakeCudaCounts());
}

TEST(GpuSpeedTest, IsNotMeasuredWhereItsMemoryIsTaken) {
  FakeCudaRuntime runtime({.memory_bytes = std::int64_t{127} << 20});
  EXPECT_FALSE(gpu_speed(runtime, 0));
  EXPECT_EQ(runtime.live(), FakeCudaCounts());
}

TEST(GpuSpeedTest, WhateverFailsNothingIsMeasuredOrLeft) {
  int failures = 0;
  for (const char* const call : {"cudaSetDevice", "cudaMemGetInfo", "cudaMalloc", "cudaHostAlloc",
                                 "cudaDeviceGetStreamPriorityRange", "cudaStreamCreateWithPriority",
                                 "cudaEventCreateWithFlags", "cudaMemsetAsync", "cudaMemcpyAsync",
                                 "cudaEventRecord", "cudaEventQuery", "cudaEventElapsedTime"}) {
    for (const int number : {0, 1}) {
      if (number > 0 && std::string_view(call) != "cudaMemcpyAsync") continue;
      FakeCudaRuntime runtime({.memory_bytes = std::int64_t{1} << 30});
      runtime.fail(call, number);
      const bool measured = gpu_speed(runtime, 0).has_value();
      const bool failed = runtime.failures_left() == 0;
      EXPECT_NE(measured, failed) << call << " " << number;
      EXPECT_EQ(runtime.live(), FakeCudaCounts()) << call << " " << number;
      if (failed) ++failures;
    }
  }
  EXPECT_GE(failures, 12);
}

}  // namespace
}  // namespace garonne::device
