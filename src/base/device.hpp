// What Programs and kernels say about devices: where memory is, which lane carries work, and where
// a kernel is put.
#pragma once

#include <cstddef>
#include <string_view>

namespace garonne {

// Emulated is a CPU that keeps its device memory apart and runs its lanes at other speeds, for
// tests.
enum class DeviceKind { Cpu, Emulated, Cuda };

// Levels of memory, the fastest first. Host is pinned memory where the device is a GPU; where the
// device is the CPU, Device is the memory of the process.
enum class Tier { Device, Host, Disk };
inline constexpr int tier_count = 3;

// Work on one lane is done in the order in which it was put there; lanes run beside each other.
enum class Lane {
  Compute,
  Message,  // from one rank to another
  Collective,
  CopyOut,  // from Device to Host
  CopyIn,   // from Host to Device
  DiskWrite,
  DiskRead,
  HostCompute,  // arithmetic on what is on Host
};

inline constexpr int lane_count = 8;
constexpr std::size_t lane_index(Lane lane) {
  return static_cast<std::size_t>(lane);
}

// "cpu", "emulated", "cuda".
std::string_view to_string(DeviceKind kind);
// "device", "host", "disk".
std::string_view to_string(Tier tier);
// "compute", "message", "collective", "copy-out", "copy-in", "disk-write", "disk-read",
// "host-compute".
std::string_view to_string(Lane lane);

// Where a kernel is put: kernels take one first. It owns nothing and is copied freely. A default
// one is the host's, on which a kernel has run when its call returns.
struct Queue {
  DeviceKind device = DeviceKind::Cpu;
  void* native = nullptr;  // the device's own stream (cudaStream_t); null where the host computes
  int threads = 0;         // at most these of the session's threads; 0 = all of them
};

}  // namespace garonne
