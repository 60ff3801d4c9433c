// What is said where a run cannot have its GPU.
#include "device/cuda_start.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "device/cuda_device.hpp"
#include "device/lane_error.hpp"
#include "fake_cuda_runtime.hpp"
#include "message_of.hpp"

namespace garonne::device {
namespace {

// Only where the runtime says that there is none there is none.
TEST(CudaStart, WhatHidesDevicesIsToldFromNone) {
  FakeCudaRuntime runtime;
  EXPECT_EQ(visible_gpus(runtime, "auto"), 1);
  runtime.fail("cudaGetDeviceCount", 0, false, CudaStatus{100});
  EXPECT_EQ(visible_gpus(runtime, "auto"), 0);
  runtime.fail("cudaGetDeviceCount", 0, false, CudaStatus{35});
  EXPECT_TRUE(contains(message_of([&] { visible_gpus(runtime, "auto"); }), "driver of this node"));
  runtime.fail("cudaGetDeviceCount", 0, false, CudaStatus{802});
  EXPECT_THROW(visible_gpus(runtime, "auto"), ConfigError);
}

// For a while.
class LockedMemory {
 public:
  explicit LockedMemory(std::int64_t bytes) {
    EXPECT_EQ(getrlimit(RLIMIT_MEMLOCK, &before_), 0);
    rlimit less = before_;
    less.rlim_cur = static_cast<rlim_t>(bytes);
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &less), 0);
  }
  ~LockedMemory() { setrlimit(RLIMIT_MEMLOCK, &before_); }
  LockedMemory(const LockedMemory&) = delete;
  LockedMemory& operator=(const LockedMemory&) = delete;

 private:
  rlimit before_{};
};

// What others have of a device is nothing that a run failed in.
TEST(CudaStart, WhatOthersHaveIsSaidInOneSentence) {
  const auto start = [](const std::string& call, CudaStatus status) {
    FakeCudaRuntime runtime;
    runtime.fail(call, 0, false, status);
    start_on_gpu([&] {
      CudaDevice device(runtime, {});
      device.reserve(Tier::Host, 1 << 16);
      device.reserve(Tier::Device, 1 << 16);
    });
  };
  for (const char* call : {"cudaSetDevice", "cudaStreamCreateWithPriority"}) {
    EXPECT_THROW(start(call, CudaStatus{46}), ConfigError);
    EXPECT_TRUE(contains(message_of([&] { start(call, CudaStatus{46}); }), "another one is there"));
    EXPECT_TRUE(contains(message_of([&] { start(call, CudaStatus{2}); }), "other processes hold"));
    EXPECT_THROW(start(call, CudaStatus{719}), LaneError) << "the device's own failure";
  }
  EXPECT_TRUE(contains(message_of([&] { start("cudaMalloc", CudaStatus{2}); }), "device tier"));
  const LockedMemory limit(std::int64_t{64} << 10);
  const std::string pinning = message_of([&] { start("cudaHostAlloc", CudaStatus{2}); });
  EXPECT_TRUE(contains(pinning, "to pin")) << pinning;
  EXPECT_TRUE(contains(pinning, "more than 64.00 KiB, which")) << pinning;
  FakeCudaRuntime full;
  full.fail("cudaMalloc", 0, false, CudaStatus{2});
  const auto measure = [&] {
    start_on_gpu([&] { CudaDevice(full, {}).reserve(Tier::Device, 1 << 16); }, "what is measured");
  };
  const std::string said = message_of(measure);
  EXPECT_TRUE(contains(said, "device tier needs for what is measured")) << said;
  EXPECT_FALSE(contains(said, "memory.budget")) << said;
  EXPECT_NO_THROW(start("cudaFree", CudaStatus{2})) << "nothing is said in a destructor";
}

}  // namespace
}  // namespace garonne::device
