// What calls of NCCL and of the CUDA runtime said: errors that name the group and what was under
// way, and waits that end. For the room's own use.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/cuda_runtime.hpp"
#include "dist/nccl_library.hpp"

namespace garonne::dist {

// Of one group. All that is handed in outlives it.
class NcclCalls {
 public:
  // `limit_seconds`: what a wait for other members may last (run.timeout); 0 = for ever.
  NcclCalls(device::CudaRuntime& runtime, NcclLibrary& library, int ordinal, double limit_seconds);

  device::CudaRuntime& runtime() const { return runtime_; }
  NcclLibrary& library() const { return library_; }
  int ordinal() const { return ordinal_; }
  double limit_seconds() const { return limit_seconds_; }

  // What the calling thread calls from now on goes to the device.
  void set_device() const;

  // CommunicationError "ACTIVITY: CALL: reason" for all but success.
  void cuda(device::CudaStatus status, const char* call, const std::string& activity) const;
  // The same; where the communicator is in progress, it is waited for.
  void nccl(NcclStatus status, const char* call, const std::string& activity,
            NcclCommunicator communicator) const;
  // Until the communicator is in progress no more.
  void settle(NcclCommunicator communicator, const std::string& activity) const;
  // Polls until `there`; CommunicationError after the limit.
  void wait(const std::function<bool()>& there, const std::string& activity) const;

 private:
  device::CudaRuntime& runtime_;
  NcclLibrary& library_;
  const int ordinal_;
  const double limit_seconds_;
};

// "run.timeout, 600 s", for people.
std::string describe_limit(double seconds);

}  // namespace garonne::dist
