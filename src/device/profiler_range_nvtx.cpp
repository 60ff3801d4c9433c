// By NVTX's headers, which come with CUDA and need neither it nor a library: what listens is loaded
// by the profiler.
#include <nvtx3/nvToolsExt.h>

#include "device/profiler_range.hpp"

namespace garonne::device {

ProfilerRange::ProfilerRange(const std::string& name) {
  nvtxRangePushA(name.c_str());
}

ProfilerRange::~ProfilerRange() {
  nvtxRangePop();
}

}  // namespace garonne::device
