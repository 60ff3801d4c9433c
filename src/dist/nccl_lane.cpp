#include "dist/nccl_lane.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace garonne::dist {

using device::CudaEvent;
using device::CudaStatus;

NcclLane::NcclLane(const NcclCalls& calls, std::string name, int channels)
    : calls_(calls), name_(std::move(name)), channels_(channels) {
  device::CudaRuntime& runtime = calls_.runtime();
  int lowest = 0;
  int highest = 0;
  calls_.cuda(runtime.priorities(lowest, highest), "cudaDeviceGetStreamPriorityRange", name_);
  calls_.cuda(runtime.create_stream(stream_, lowest), "cudaStreamCreateWithPriority", name_);
}

void NcclLane::start(const NcclId& id, int ranks, int rank) {
  const std::string activity = fmt::format("start of NCCL for {}", name_);
  const NcclStatus started =
      calls_.library().start(communicator_, ranks, id, rank, name_.c_str(), channels_);
  calls_.nccl(started, "ncclCommInitRankConfig", activity, communicator_);
  calls_.settle(communicator_, activity);
}

void NcclLane::split_from(const NcclLane& parent, int color, int key) {
  const std::string activity = fmt::format("start of NCCL for {}", name_);
  calls_.nccl(calls_.library().split(parent.communicator_, color, key, communicator_, name_.c_str(),
                                     channels_),
              "ncclCommSplit", activity, parent.communicator_);
  calls_.settle(parent.communicator_, activity);
  calls_.settle(communicator_, activity);
}

void NcclLane::decline(const NcclCalls& calls, const NcclLane& parent) {
  const std::string activity = fmt::format("start of NCCL for lanes of {}", parent.name_);
  NcclCommunicator none = nullptr;
  calls.nccl(calls.library().split(parent.communicator_, nccl_no_color, 0, none,
                                   parent.name_.c_str(), parent.channels_),
             "ncclCommSplit", activity, parent.communicator_);
  calls.settle(parent.communicator_, activity);
}

CudaEvent NcclLane::recorded(device::CudaStream stream, const std::string& activity) {
  device::CudaRuntime& runtime = calls_.runtime();
  CudaEvent event = nullptr;
  if (spare_events_.empty()) {
    calls_.cuda(runtime.create_event(event, false), "cudaEventCreateWithFlags", activity);
  } else {
    event = spare_events_.back();
    spare_events_.pop_back();
  }
  calls_.cuda(runtime.record_event(event, stream), "cudaEventRecord", activity);
  return event;
}

void NcclLane::begin(CudaEvent ready, std::string activity) {
  current_ = {};
  current_.activity = std::move(activity);
  calls_.cuda(calls_.runtime().wait_event(stream_, ready), "cudaStreamWaitEvent",
              current_.activity);
  current_.begun = recorded(stream_, current_.activity);
}

void NcclLane::end(std::uint64_t number) {
  current_.number = number;
  current_.ended = recorded(stream_, current_.activity);
  pending_.push_back(std::move(current_));
  current_ = {};
}

void NcclLane::grouped(const std::function<void()>& calls) {
  NcclLibrary& library = calls_.library();
  calls_.nccl(library.group_start(), "ncclGroupStart", current_.activity, nullptr);
  try {
    calls();
  } catch (...) {
    // Within a group that stays open nothing that is put later would ever begin.
    static_cast<void>(library.group_end());
    throw;
  }
  calls_.nccl(library.group_end(), "ncclGroupEnd", current_.activity, communicator_);
}

// In a group nothing is under way before its end.
void NcclLane::put(NcclStatus status, const char* call) const {
  if (status == NcclStatus::InProgress) return;
  calls_.nccl(status, call, current_.activity, communicator_);
}

void NcclLane::send(const std::byte* data, std::int64_t bytes, int to) {
  if (bytes == 0) return;
  put(calls_.library().send(data, static_cast<std::size_t>(bytes), to, communicator_, stream_),
      "ncclSend");
}

void NcclLane::receive(std::byte* data, std::int64_t bytes, int from) {
  if (bytes == 0) return;
  put(calls_.library().receive(data, static_cast<std::size_t>(bytes), from, communicator_, stream_),
      "ncclRecv");
}

void NcclLane::all_gather(const std::byte* mine, std::byte* all, std::int64_t bytes_each) {
  if (bytes_each == 0) return;
  calls_.nccl(calls_.library().all_gather(mine, all, static_cast<std::size_t>(bytes_each),
                                          communicator_, stream_),
              "ncclAllGather", current_.activity, communicator_);
}

void NcclLane::broadcast(void* data, std::int64_t bytes, int root) {
  if (bytes == 0) return;
  calls_.nccl(calls_.library().broadcast(data, static_cast<std::size_t>(bytes), root, communicator_,
                                         stream_),
              "ncclBroadcast", current_.activity, communicator_);
}

void NcclLane::launched(CudaStatus status) const {
  calls_.cuda(status, "a kernel", current_.activity);
}

NcclLane::Operations::const_iterator NcclLane::find(std::uint64_t number) const {
  return std::ranges::find(pending_, number, &Pending::number);
}

void NcclLane::make_wait(device::CudaStream stream, std::uint64_t number, bool watched) {
  Pending& operation = pending_[static_cast<std::size_t>(find(number) - pending_.begin())];
  if (watched && operation.awaited == nullptr)
    operation.awaited = recorded(stream, operation.activity);
  calls_.cuda(calls_.runtime().wait_event(stream, operation.ended), "cudaStreamWaitEvent",
              operation.activity);
}

std::optional<std::chrono::steady_clock::time_point> NcclLane::holds_up_since(
    std::chrono::steady_clock::time_point now) {
  std::optional<std::chrono::steady_clock::time_point> first;
  for (Pending& operation : pending_) {
    if (operation.awaited == nullptr) continue;
    if (!operation.awaited_since && reached(operation.awaited, operation.activity))
      operation.awaited_since = now;
    if (operation.awaited_since) first = std::min(first.value_or(now), *operation.awaited_since);
  }
  return first;
}

void NcclLane::spare_events_of(const Pending& operation) {
  for (const CudaEvent event : {operation.begun, operation.ended, operation.awaited}) {
    if (event != nullptr) spare_events_.push_back(event);
  }
}

void NcclLane::forget_recorded() {
  // An operation that something was refused in has begun.
  spare_events_of(current_);
  current_ = {};
  for (const Pending& each : pending_) spare_events_of(each);
  pending_.clear();
}

bool NcclLane::reached(CudaEvent event, const std::string& activity) {
  const CudaStatus status = calls_.runtime().query_event(event);
  if (status != CudaStatus::Success && status != CudaStatus::NotReady && !failure_) {
    failure_ = CommunicationError(
        activity, fmt::format("cudaEventQuery: {}", calls_.runtime().error_text(status)));
  }
  return status == CudaStatus::Success;
}

void NcclLane::look(std::chrono::steady_clock::time_point now) {
  while (!pending_.empty()) {
    Pending& oldest = pending_.front();
    if (!oldest.since && reached(oldest.begun, oldest.activity)) oldest.since = now;
    if (!oldest.since || !reached(oldest.ended, oldest.activity)) return;
    spare_events_of(oldest);
    pending_.pop_front();
  }
}

std::optional<CommunicationError> NcclLane::trouble(
    std::chrono::steady_clock::time_point now) const {
  if (failure_) return failure_;
  const std::string activity =
      pending_.empty() ? fmt::format("NCCL for {}", name_) : pending_.front().activity;
  NcclStatus state = NcclStatus::Success;
  const NcclStatus asked = calls_.library().state(communicator_, state);
  const NcclStatus failed = asked == NcclStatus::Success ? state : asked;
  if (failed != NcclStatus::Success && failed != NcclStatus::InProgress) {
    return CommunicationError(activity, calls_.library().error_text(failed, communicator_));
  }
  const double limit = calls_.limit_seconds();
  if (limit == 0 || pending_.empty() || !pending_.front().since) return std::nullopt;
  if (std::chrono::duration<double>(now - *pending_.front().since).count() <= limit) {
    return std::nullopt;
  }
  return CommunicationError(
      activity, fmt::format("not complete after {}; a rank of them has stopped, or does something "
                            "else",
                            describe_limit(limit)));
}

void NcclLane::destroy_events() {
  for (const CudaEvent event : spare_events_) {
    calls_.cuda(calls_.runtime().destroy_event(event), "cudaEventDestroy", name_);
  }
  spare_events_.clear();
}

void NcclLane::finish() {
  const std::string activity = fmt::format("end of NCCL for {}", name_);
  NcclLibrary& library = calls_.library();
  calls_.nccl(library.finalize(communicator_), "ncclCommFinalize", activity, communicator_);
  calls_.settle(communicator_, activity);
  calls_.nccl(library.destroy(std::exchange(communicator_, nullptr)), "ncclCommDestroy", activity,
              nullptr);
  destroy_events();
  calls_.cuda(calls_.runtime().destroy_stream(stream_), "cudaStreamDestroy", activity);
}

}  // namespace garonne::dist
