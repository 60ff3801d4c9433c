// Host work in the order of a GPU's stream: it is carried out by a thread of the CUDA driver.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "device/cuda_check.hpp"

namespace garonne::device {

// Work is dropped where the device is over. The driver has one thread for the work of all streams,
// so work does not wait for other work.
class CudaHostFunctions {
 public:
  // Both outlive the streams that have work.
  CudaHostFunctions(const CudaCheck& check, LaneClock& clock) : check_(check), clock_(clock) {}
  CudaHostFunctions(const CudaHostFunctions&) = delete;
  CudaHostFunctions& operator=(const CudaHostFunctions&) = delete;

  // What it throws ends the device as a LaneError; what it captured is gone when the stream goes
  // on.
  void launch(CudaStream stream, Lane lane, std::function<void()> work,
              const std::string& activity);

  // Forgets what the driver did not call and will not: after a failure, it does not.
  void drop();
  // From now on work is dropped without a look at the clock. For streams that never come to an end:
  // then this object stays.
  void abandon();

 private:
  struct Function {
    CudaHostFunctions* owner = nullptr;
    Lane lane = Lane::Compute;
    std::function<void()> work;
    std::string activity;
  };

  static void call(void* function);
  std::unique_ptr<Function> take(Function* function);
  bool over();

  const CudaCheck& check_;
  LaneClock& clock_;
  std::mutex mutex_;
  bool abandoned_ = false;
  std::unordered_map<Function*, std::unique_ptr<Function>> functions_;
};

}  // namespace garonne::device
