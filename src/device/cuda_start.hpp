// What the CUDA runtime says where a run starts on a GPU, in words for who configured it.
#pragma once

#include <functional>
#include <string>

#include "device/cuda_runtime.hpp"

namespace garonne::device {

// How many devices the process sees; none is no error. ConfigError where the driver is too old or
// the runtime fails otherwise. `asked` is the value of run.device.
int visible_gpus(CudaRuntime& runtime, const std::string& asked);

// Carries out what makes a device or reserves memory of it. What throws because another process has
// the device to itself, or because memory is others', is a ConfigError in place of a LaneError;
// what memory of the device is for, where that is no budget, is said.
void start_on_gpu(const std::function<void()>& work, const std::string& purpose = "");

}  // namespace garonne::device
