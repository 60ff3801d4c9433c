#include "device/cuda_events.hpp"

#include <fmt/format.h>

namespace garonne::device {

CudaEvents::Owned CudaEvents::recorded(CudaStream stream, Lane lane, const std::string& activity) {
  CudaEvent event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  CudaRuntime& runtime = check_.runtime();
  if (event == nullptr) {
    check_(runtime.create_event(event, timed_), "cudaEventCreateWithFlags", lane, activity);
  }
  Owned owned(event, [this](CudaEvent handle) { give_back(handle); });
  check_(runtime.record_event(event, stream), "cudaEventRecord", lane, activity);
  return owned;
}

void CudaEvents::give_back(CudaEvent event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

void CudaEvents::destroy(std::vector<std::string>& failures) {
  const std::lock_guard lock(mutex_);
  CudaRuntime& runtime = check_.runtime();
  for (const CudaEvent event : free_) {
    const CudaStatus status = runtime.destroy_event(event);
    if (status != CudaStatus::Success) {
      failures.push_back(fmt::format("cudaEventDestroy: {}", runtime.error_text(status)));
    }
  }
  free_.clear();
}

}  // namespace garonne::device
