// Events of a GPU that are used again: making one costs more than recording it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda_check.hpp"

namespace garonne::device {

// Safe for all threads.
class CudaEvents {
 public:
  // Events of a `timed` pool remember when they were reached. The check outlives the pool.
  CudaEvents(const CudaCheck& check, bool timed) : check_(check), timed_(timed) {}
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;

  // An event whose last record nobody asks about any more, back in the pool with its last owner.
  using Owned = std::shared_ptr<CudaEventHandle>;
  // Recorded on the stream. An event that was not recorded counts as complete, so there are none.
  Owned recorded(CudaStream stream, Lane lane, const std::string& activity);

  // All are back. What destroying them said is appended.
  void destroy(std::vector<std::string>& failures);

 private:
  void give_back(CudaEvent event);

  const CudaCheck& check_;
  const bool timed_;
  std::mutex mutex_;
  std::vector<CudaEvent> free_;
};

}  // namespace garonne::device
