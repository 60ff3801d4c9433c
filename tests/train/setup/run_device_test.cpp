// Which device run.device names, and what a rank gets of it.
#include "train/setup/run_device.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/cuda_runtime.hpp"
#include "exec/gpu_library.hpp"
#include "train/setup/on_device.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {
namespace {

TEST(RunDevice, HasTheKindThatTheKeyNames) {
  EXPECT_EQ(device_kind(on("cpu")), DeviceKind::Cpu);
  EXPECT_EQ(device_kind(on("emulated")), DeviceKind::Emulated);
  // Also where there is none: plans are made on other machines.
  EXPECT_EQ(device_kind(on("cuda")), DeviceKind::Cuda);
  EXPECT_THROW(device_kind(on("gpu")), InternalError);
  EXPECT_EQ(device_facts(on("cpu")).granularity(), cpu_allocation_granularity);
  EXPECT_EQ(device_facts(on("cuda")).granularity(), cuda_allocation_granularity);
}

TEST(RunDevice, AClusterFilesGpuGoesBeforeWhatTheRunNames) {
  plan::Cluster gpus;
  gpus.device = {DeviceKind::Cuda, 90, 132};
  EXPECT_EQ(device_facts(on("cpu"), gpus), gpus.device);
  EXPECT_EQ(device_facts(on("cuda"), gpus), gpus.device);
  EXPECT_EQ(device_facts(on("cuda"), {}), device_facts(on("cuda")));
  EXPECT_EQ(device_facts(on("cpu"), {}), plan::DeviceFacts());
}

TEST(RunDevice, AutoIsAGpuWhereOneIsVisible) {
  int gpus = 0;
  const bool visible =
      exec::built_with_cuda() &&
      device::make_cuda_runtime()->device_count(gpus) == device::CudaStatus::Success && gpus > 0;
  EXPECT_EQ(device_kind(on("auto")), visible ? DeviceKind::Cuda : DeviceKind::Cpu);
  EXPECT_NO_THROW(expect_device_built(on("auto")));
  dist::Session alone = dist::Session::single();
  EXPECT_EQ(RunDevice(on("cpu"), alone).text(), "");
}

TEST(RunDevice, HasTiersOfTheBytesThatAreAskedFor) {
  RunDevice device;
  EXPECT_EQ(device.staging(), nullptr) << "the host reaches the memory";
  const auto one = device.make_tier(1 << 20);
  const auto other = device.make_tier(2 << 20);
  EXPECT_EQ(one->limit_bytes(), 1 << 20);
  EXPECT_EQ(other->limit_bytes(), 2 << 20);
  const exec::DeviceScope scope(*one);
  const at::Tensor tensor = at::empty({1000}, at::kByte);
  EXPECT_EQ(one->live_bytes(), 1024);
  EXPECT_EQ(one->set_live_apart(), 1024);
  EXPECT_EQ(one->live_bytes(), 0);
  EXPECT_EQ(one->limit_bytes(), (1 << 20) - 1024) << "what stays takes from it";
}

TEST(RunDevice, OfAGpuTheBudgetIsGivenOrKnownThere) {
  RunConfig config = on("cuda");
  config.memory.budget = 12345;
  EXPECT_EQ(resolve_budget(config, 1), 12345);
  config.memory.budget = RunConfig::automatic_budget;
  EXPECT_THROW(resolve_budget(config, 1), ConfigError);
}

}  // namespace
}  // namespace garonne::train
