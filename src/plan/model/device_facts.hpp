// What the bytes that nodes declare depend on besides their sizes: whose libraries run them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/device.hpp"

namespace garonne::plan {

// A default one is the processor.
struct DeviceFacts {
  DeviceKind kind = DeviceKind::Cpu;
  int architecture = 0;     // of a GPU: 80, 90; 0: any
  int multiprocessors = 0;  // of a GPU; 0: as many as any has

  bool is_gpu() const { return kind == DeviceKind::Cuda; }
  // Bytes that allocations in its memory are multiples of.
  std::int64_t granularity() const {
    return is_gpu() ? cuda_allocation_granularity : cpu_allocation_granularity;
  }

  bool operator==(const DeviceFacts&) const = default;
};

// What a library keeps in the device's memory all the time, or a table that kernels read there.
struct LibraryWorkspace {
  std::string name;
  std::int64_t bytes = 0;
};

// Of every library that a rank on the device uses; none on processors, and none of a GPU whose
// architecture is not said: who runs there has measured what they keep, and has taken it off.
std::vector<LibraryWorkspace> library_workspaces(const DeviceFacts& device);

}  // namespace garonne::plan
