#include "device/cuda_lane.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace garonne::device {
namespace {

// Marks that nobody asks about are looked at once so many are there.
constexpr std::size_t many_pending = 256;

}  // namespace

CudaLane::CudaLane(const CudaCheck& check, CudaEvents& plain, CudaEvents& timed, Lane lane,
                   int priority)
    : check_(check), plain_(plain), timed_(timed), lane_(lane) {
  check_(check_.runtime().create_stream(stream_, priority), "cudaStreamCreateWithPriority", lane_,
         "start of the device");
}

void CudaLane::record(std::uint64_t number, const std::string& activity, bool timed) {
  expect(number == reached_ + pending_.size() + 1, "numbers of a stream have a gap");
  CudaEvents::Owned event = (timed ? timed_ : plain_).recorded(stream_, lane_, activity);
  if (timed) moments_.emplace(number, event);
  pending_.push_back({std::move(event), activity});
  if (capturing_) return;
  while (pending_.size() > many_pending && reached(reached_ + 1)) {
  }
}

void CudaLane::begin_capture() {
  expect(pending_.empty(), "a capture begins while a stream has work");
  capturing_ = true;
}

void CudaLane::leave_capture(std::uint64_t last) {
  capturing_ = false;
  pending_.clear();
  reached_ = last;
}

bool CudaLane::reached(std::uint64_t number) {
  if (number <= reached_) return true;
  if (capturing_) return false;
  const CudaStatus status = check_.runtime().query_event(event(number).get());
  if (status == CudaStatus::NotReady) {
    // A device that has failed says so of all events: what was reached before is noted here.
    while (reached_ + 1 < number && reached(reached_ + 1)) {
    }
    return false;
  }
  // Of what failed, the oldest work that is not done is the one to suspect; where each piece is
  // waited for, the one that is asked about.
  const bool is_known = status == CudaStatus::Success || check_.synchronous();
  const std::string suspect = is_known ? "" : activity();
  check_.late(status, "cudaEventQuery", lane_, suspect.empty() ? activity(number) : suspect);
  drop_reached(number);
  return true;
}

void CudaLane::drop_reached(std::uint64_t number) {
  while (reached_ < number) {
    pending_.pop_front();
    ++reached_;
  }
}

std::string CudaLane::activity() const {
  for (const Pending& each : pending_) {
    if (check_.runtime().query_event(each.event.get()) != CudaStatus::Success) return each.activity;
  }
  return "";
}

CudaEvent CudaLane::moment(std::uint64_t number) const {
  const auto found = moments_.find(number);
  return found == moments_.end() ? nullptr : found->second.get();
}

void CudaLane::forget_times() {
  while (!moments_.empty() && reached(moments_.begin()->first)) moments_.erase(moments_.begin());
}

bool CudaLane::idle(std::vector<std::string>& failures) {
  CudaRuntime& runtime = check_.runtime();
  const CudaStatus status = runtime.query_stream(stream_);
  if (status == CudaStatus::Success || status == CudaStatus::NotReady || failed_) {
    return status != CudaStatus::NotReady;
  }
  failed_ = true;
  failures.push_back(
      fmt::format("cudaStreamQuery: {} ({} lane)", runtime.error_text(status), to_string(lane_)));
  return false;
}

void CudaLane::destroy(std::vector<std::string>& failures) {
  pending_.clear();
  moments_.clear();
  CudaRuntime& runtime = check_.runtime();
  const CudaStatus status = runtime.destroy_stream(stream_);
  if (status != CudaStatus::Success) {
    failures.push_back(fmt::format("cudaStreamDestroy: {} ({} lane)", runtime.error_text(status),
                                   to_string(lane_)));
  }
}

}  // namespace garonne::device
