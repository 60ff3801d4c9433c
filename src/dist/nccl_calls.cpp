#include "dist/nccl_calls.hpp"

#include <fmt/format.h>

#include <thread>

#include "base/awake_time.hpp"
#include "base/error.hpp"
#include "dist/pending_operation.hpp"

namespace garonne::dist {

using device::CudaStatus;

NcclCalls::NcclCalls(device::CudaRuntime& runtime, NcclLibrary& library, int ordinal,
                     double limit_seconds)
    : runtime_(runtime), library_(library), ordinal_(ordinal), limit_seconds_(limit_seconds) {}

void NcclCalls::set_device() const {
  cuda(runtime_.set_device(ordinal_), "cudaSetDevice", "NCCL");
}

void NcclCalls::cuda(CudaStatus status, const char* call, const std::string& activity) const {
  if (status == CudaStatus::Success) return;
  throw CommunicationError(activity, fmt::format("{}: {}", call, runtime_.error_text(status)));
}

void NcclCalls::nccl(NcclStatus status, const char* call, const std::string& activity,
                     NcclCommunicator communicator) const {
  if (status == NcclStatus::InProgress && communicator != nullptr) {
    return settle(communicator, activity);
  }
  if (status == NcclStatus::Success) return;
  throw CommunicationError(activity,
                           fmt::format("{}: {}", call, library_.error_text(status, communicator)));
}

void NcclCalls::settle(NcclCommunicator communicator, const std::string& activity) const {
  wait(
      [&] {
        NcclStatus state = NcclStatus::Success;
        const NcclStatus asked = library_.state(communicator, state);
        if (asked == NcclStatus::Success && state == NcclStatus::InProgress) return false;
        const NcclStatus failed = asked == NcclStatus::Success ? state : asked;
        if (failed == NcclStatus::Success) return true;
        throw CommunicationError(activity, library_.error_text(failed, communicator));
      },
      activity);
}

void NcclCalls::wait(const std::function<bool()>& there, const std::string& activity) const {
  AwakeTime waited;
  Backoff backoff(true);
  while (!there()) {
    if (limit_seconds_ > 0 && waited.seconds() > limit_seconds_) {
      throw CommunicationError(
          activity, fmt::format("not there after {}; a rank of them has stopped, does something "
                                "else, or cannot be reached (NCCL_DEBUG=INFO says more)",
                                describe_limit(limit_seconds_)));
    }
    bool yield = false;
    const auto pause = backoff.next(yield);
    if (pause.count() > 0) {
      std::this_thread::sleep_for(pause);
    } else if (yield) {
      std::this_thread::yield();
    }
  }
}

std::string describe_limit(double seconds) {
  return fmt::format("{:g} s (run.timeout)", seconds);
}

}  // namespace garonne::dist
