// Operations over NCCL that become part of a graph of the device, and the watch over such graphs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>
#include <string>

#include "base/error.hpp"
#include "dist/nccl_transport.hpp"

namespace garonne::dist {

void NcclTransport::begin_recording() {
  wait_until_idle(fmt::format("operations before a recorded step in {}", group_));
  const std::lock_guard lock(mutex_);
  rethrow_failure();
  expect(!recording_ && !replay_, "a recording of operations within another one");
  recording_ = true;
}

// Streams that nobody has waited for would be no part of the capture that they came from.
void NcclTransport::end_recording() {
  const std::lock_guard lock(mutex_);
  rethrow_failure();
  expect(recording_, "the end of a recording that did not begin");
  for_each_lane([&](NcclLane& lane) {
    if (lane.idle()) return;
    calls_.cuda(calls_.runtime().wait_event(compute_, lane.last_ended()), "cudaStreamWaitEvent",
                group_);
    lane.forget_recorded();
  });
  recording_ = false;
}

void NcclTransport::drop_recording() {
  const std::lock_guard lock(mutex_);
  for_each_lane([](NcclLane& lane) { lane.forget_recorded(); });
  recording_ = false;
}

void NcclTransport::begin_replay(const std::string& activity, double own_seconds) {
  const std::lock_guard lock(mutex_);
  rethrow_failure();
  expect(!recording_ && !replay_, "a graph is carried out within another one");
  replay_ = {
      .activity = fmt::format("{} in {} (ranks {})", activity, group_, fmt::join(members(), ", ")),
      .since = Clock::now(),
      .own_seconds = own_seconds};
}

void NcclTransport::end_replay() {
  const std::lock_guard lock(mutex_);
  replay_.reset();
  rethrow_failure();
}

}  // namespace garonne::dist
