// What a run remembers of its GPU.
#include "device/gpu_facts.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "fake_cuda_runtime.hpp"
#include "message_of.hpp"

namespace garonne::device {
namespace {

class GpuFactsTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  GpuFacts facts_with(const std::string& driver) {
    std::ofstream(path_) << driver;
    return gpu_facts(runtime_, 0, path_);
  }

  const std::string path_ = testing::TempDir() + "garonne_driver_version";
  FakeCudaRuntime runtime_{{.memory_bytes = std::int64_t{80} << 30}};
};

TEST_F(GpuFactsTest, AreThoseOfDeviceDriverAndLibrary) {
  const GpuFacts facts = facts_with(
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (me)\n"
      "GCC version:  gcc version 12.3.0\n");
  EXPECT_EQ(facts, (GpuFacts{"a made-up device", 90, std::int64_t{80} << 30, "580.95.05", "13.2",
                             "13.0"}));
  EXPECT_EQ(to_text(facts),
            "a made-up device, architecture 90, 80.00 GiB, driver 580.95.05 (CUDA 13.2), run time "
            "13.0");
}

TEST_F(GpuFactsTest, ADriverWithoutAVersionIsNoError) {
  for (const char* text : {"", "NVRM version: none\n", "\n1.2.3\n"})
    EXPECT_EQ(facts_with(text).driver, "") << text;
  const GpuFacts facts = gpu_facts(runtime_, 0, path_ + "-that-is-missing");
  EXPECT_EQ(facts.driver, "");
  EXPECT_EQ(to_text(facts),
            "a made-up device, architecture 90, 80.00 GiB, driver (CUDA 13.2), run time 13.0");
}

TEST_F(GpuFactsTest, ARuntimeThatDoesNotSayIsNamed) {
  for (const char* call :
       {"cudaGetDeviceProperties", "cudaDriverGetVersion", "cudaRuntimeGetVersion"}) {
    FakeCudaRuntime runtime;
    runtime.fail(call, 0, false, CudaStatus{999});
    const std::string said = message_of([&] { gpu_facts(runtime, 0, path_); });
    EXPECT_NE(said.find(std::string(call) + ": cudaError999"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace garonne::device
