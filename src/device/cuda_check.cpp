#include "device/cuda_check.hpp"

#include <fmt/format.h>

#include <exception>

namespace garonne::device {

CudaCheck::CudaCheck(CudaRuntime& runtime, LaneClock& clock, bool synchronous)
    : runtime_(runtime), clock_(clock), synchronous_(synchronous) {}

void CudaCheck::operator()(CudaStatus status, std::string_view call, Lane lane,
                           const std::string& activity) const {
  if (status != CudaStatus::Success) fail(status, call, lane, activity, false);
}

void CudaCheck::late(CudaStatus status, std::string_view call, Lane lane,
                     const std::string& activity) const {
  if (status != CudaStatus::Success) fail(status, call, lane, activity, !synchronous_);
}

void CudaCheck::fail(CudaStatus status, std::string_view call, Lane lane,
                     const std::string& activity, bool late) const {
  std::string reason = fmt::format("{}: {}", call, runtime_.error_text(status));
  if (late) {
    reason += "; this or other work before it failed: GARONNE_SYNCHRONOUS=1 says which";
  }
  const CudaFailure error(status, call, lane, activity, reason);
  if (!tell_only_) clock_.fail(std::make_exception_ptr(error));
  throw error;
}

void CudaCheck::throw_only(CudaStatus status, std::string_view call, Lane lane,
                           const std::string& activity) const {
  throw CudaFailure(status, call, lane, activity,
                    fmt::format("{}: {}", call, runtime_.error_text(status)));
}

}  // namespace garonne::device
