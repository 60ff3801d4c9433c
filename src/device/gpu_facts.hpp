// Which GPU it is, and by which driver and library it is used: what a run remembers of it.
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda_runtime.hpp"

namespace garonne::device {

struct GpuFacts {
  std::string name;
  int architecture = 0;  // compute capability, 90 of 9.0
  std::int64_t memory_bytes = 0;
  std::string driver;        // its own version, "580.95.05"; empty: the node does not say
  std::string driver_cuda;   // the newest CUDA that the driver knows, "13.0"
  std::string runtime_cuda;  // the version of the run time library

  friend bool operator==(const GpuFacts&, const GpuFacts&) = default;
};

// Of a device by its number among the visible ones. ConfigError where the runtime does not say.
// `driver_file` is where the driver's kernel module writes its version.
GpuFacts gpu_facts(CudaRuntime& runtime, int ordinal,
                   const std::string& driver_file = "/proc/driver/nvidia/version");

// "NVIDIA H100 80GB HBM3, architecture 90, 79.18 GiB, driver 580.95.05 (CUDA 13.0), run time 13.0".
std::string to_text(const GpuFacts& facts);

}  // namespace garonne::device
