// What a call of the CUDA runtime said: an error that names call, lane and activity, or nothing.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "device/cuda_runtime.hpp"
#include "device/lane_clock.hpp"
#include "device/lane_error.hpp"

namespace garonne::device {

// The LaneError of a call of the runtime.
class CudaFailure final : public LaneError {
 public:
  CudaFailure(CudaStatus status, std::string_view call, Lane lane, const std::string& activity,
              const std::string& reason)
      : LaneError(lane, activity, ExitCode::Refused, reason), status_(status), call_(call) {}

  CudaStatus status() const { return status_; }
  const std::string& call() const { return call_; }

 private:
  CudaStatus status_;
  std::string call_;
};

// Safe for all threads.
class CudaCheck {
 public:
  // In errors of what was put earlier: whether every piece of work is waited for at once, so that
  // its error is its own. Runtime and clock outlive it.
  CudaCheck(CudaRuntime& runtime, LaneClock& clock, bool synchronous);

  CudaRuntime& runtime() const { return runtime_; }
  bool synchronous() const { return synchronous_; }

  // LaneError "copy-in lane, value 3: cudaMemcpyAsync: cudaErrorInvalidValue: …" for all but
  // success. It ends the device: every wait for a lane throws it from then on.
  void operator()(CudaStatus status, std::string_view call, Lane lane,
                  const std::string& activity) const;

  // The same for calls that ask about earlier work, which may say what failed before.
  void late(CudaStatus status, std::string_view call, Lane lane, const std::string& activity) const;

  // Throws the same error and leaves the device as it is.
  [[noreturn]] void throw_only(CudaStatus status, std::string_view call, Lane lane,
                               const std::string& activity) const;
  // Whether all errors are told so, as while work is recorded, of which nothing is carried out.
  void tell_only(bool only) { tell_only_ = only; }

 private:
  [[noreturn]] void fail(CudaStatus status, std::string_view call, Lane lane,
                         const std::string& activity, bool late) const;

  CudaRuntime& runtime_;
  LaneClock& clock_;
  const bool synchronous_;
  std::atomic<bool> tell_only_{false};
};

}  // namespace garonne::device
