// How fast a GPU moves bytes, within itself and to and from the host: what tells one whose memory
// or whose link is slow from the others of a job.
#pragma once

#include <optional>

#include "device/cuda_runtime.hpp"

namespace garonne::device {

// Seconds of copies of some size, the same on every GPU.
struct GpuSpeed {
  double within_seconds = 0;  // from its memory to its memory
  double in_seconds = 0;      // from pinned memory of the host
  double out_seconds = 0;     // to it
  double both_seconds = 0;    // both of these at once
  double bytes = 0;           // of each of the last three
};

// Of a device by its number among the visible ones: takes 128 MiB of it and 16 MiB of pinned memory
// for some milliseconds of copies. Nothing where these are not free, or a call fails: what is wrong
// then is said by who needs the device.
std::optional<GpuSpeed> gpu_speed(CudaRuntime& runtime, int ordinal);

}  // namespace garonne::device
