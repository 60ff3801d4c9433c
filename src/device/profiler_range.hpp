// Names on the time line of a profiler: NVTX, which Nsight Systems shows.
#pragma once

#include <string>

namespace garonne::device {

// What the host does while this lives; ranges of a thread lie within each other. Where no profiler
// listens it costs some nanoseconds, in a build without CUDA nothing.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace garonne::device
