// Operations of NCCL that are carried out in the order in which they were put: a communicator, and
// the stream that they are put on. For the room's own use.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "dist/nccl_calls.hpp"

namespace garonne::dist {

// For one thread at a time. An operation is put between `begin` and `end`; the calls between them
// are of this lane, and throw CommunicationErrors that name the operation.
class NcclLane {
 public:
  // Makes the stream. `name` ("data", "pipeline 0 to 1") is what errors and NCCL's logs say;
  // `channels` has each connection, at most. The calls outlive the lane.
  NcclLane(const NcclCalls& calls, std::string name, int channels);
  // What was not finished or left is leaked: a process that fails ends soon.
  ~NcclLane() = default;
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  // One of the two, once. Collective over the members; with the number of this rank among them.
  void start(const NcclId& id, int ranks, int rank);
  // Collective over the parent, `color` and `key` as for NcclLibrary::split. The rest of the
  // parent's members call decline.
  void split_from(const NcclLane& parent, int color, int key);
  static void decline(const NcclCalls& calls, const NcclLane& parent);

  device::CudaStream stream() const { return stream_; }
  NcclCommunicator communicator() const { return communicator_; }

  // The lane goes on after `ready`, which is recorded.
  void begin(device::CudaEvent ready, std::string activity);
  void end(std::uint64_t number);

  // Carries `calls` out as one call of NCCL, so that sends and receives cannot wait for each other.
  void grouped(const std::function<void()>& calls);
  // Within grouped(). Empty messages are left out: both ends know the sizes.
  void send(const std::byte* data, std::int64_t bytes, int to);
  void receive(std::byte* data, std::int64_t bytes, int from);
  void all_gather(const std::byte* mine, std::byte* all, std::int64_t bytes_each);
  void broadcast(void* data, std::int64_t bytes, int root);
  // Of what a kernel was put on the stream.
  void launched(device::CudaStatus status) const;

  // Whether an operation of this lane is not complete.
  bool has(std::uint64_t number) const { return find(number) != pending_.end(); }
  // `stream` goes on after the end of an operation that the lane has; where `watched`,
  // holds_up_since() says whether that is what it waits for.
  void make_wait(device::CudaStream stream, std::uint64_t number, bool watched);
  // Looks how far the stream has come, and throws nothing: trouble() says it. An operation counts
  // as waited for from when it was first seen to be its turn.
  void look(std::chrono::steady_clock::time_point now);
  bool idle() const { return pending_.empty(); }
  // Since when a stream has been seen to wait for operations and for nothing else; after look().
  std::optional<std::chrono::steady_clock::time_point> holds_up_since(
      std::chrono::steady_clock::time_point now);
  // Of what was recorded in a graph: the event at the end of it, null where there is nothing.
  device::CudaEvent last_ended() const { return idle() ? nullptr : pending_.back().ended; }
  // What was recorded is the graph's, or nobody's any more: nothing of it is looked at.
  void forget_recorded();
  // Of what has failed, or is waited for longer than the limit; after look().
  std::optional<CommunicationError> trouble(std::chrono::steady_clock::time_point now) const;

  // All members; everything is complete.
  void finish();

 private:
  struct Pending {
    std::uint64_t number = 0;
    device::CudaEvent begun = nullptr;
    device::CudaEvent ended = nullptr;
    std::string activity;
    std::optional<std::chrono::steady_clock::time_point> since;
    device::CudaEvent awaited = nullptr;  // all that is before the wait for it
    std::optional<std::chrono::steady_clock::time_point> awaited_since;
  };
  using Operations = std::deque<Pending>;

  Operations::const_iterator find(std::uint64_t number) const;
  device::CudaEvent recorded(device::CudaStream stream, const std::string& activity);
  void spare_events_of(const Pending& operation);
  void put(NcclStatus status, const char* call) const;
  bool reached(device::CudaEvent event, const std::string& activity);
  void destroy_events();

  const NcclCalls& calls_;
  const std::string name_;  // NCCL keeps the address
  const int channels_;
  device::CudaStream stream_ = nullptr;
  NcclCommunicator communicator_ = nullptr;
  Pending current_;
  Operations pending_;
  std::vector<device::CudaEvent> spare_events_;
  std::optional<CommunicationError> failure_;  // that look() came upon
};

}  // namespace garonne::dist
