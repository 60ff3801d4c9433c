// Of builds without CUDA, which have no profiler for it.
#include "device/profiler_range.hpp"

namespace garonne::device {

ProfilerRange::ProfilerRange(const std::string& /*name*/) {}
ProfilerRange::~ProfilerRange() = default;

}  // namespace garonne::device
