// One lane that is a stream of a GPU: its marks are events.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "device/cuda_events.hpp"

namespace garonne::device {

// For the thread that puts work on it.
class CudaLane {
 public:
  // Makes the stream. What is handed in outlives the lane.
  CudaLane(const CudaCheck& check, CudaEvents& plain, CudaEvents& timed, Lane lane, int priority);
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  CudaStream stream() const { return stream_; }

  // The next mark, `number`, is reached with all that is on the stream so far, which `activity`
  // names. Numbers are given without gaps.
  void record(std::uint64_t number, const std::string& activity, bool timed = false);

  // From then on what is recorded belongs to a capture: nothing is asked how far it is. Nothing was
  // pending. Afterwards everything up to the `last` number that was given counts as reached, also
  // where it was never recorded.
  void begin_capture();
  void leave_capture(std::uint64_t last);
  bool has_pending() const { return !pending_.empty(); }

  bool has(std::uint64_t number) const { return number <= reached_ + pending_.size(); }
  // Whether the stream has come to a number that was recorded. LaneError where it failed.
  bool reached(std::uint64_t number);
  // That of a number that was not reached when it was last asked about.
  const CudaEvents::Owned& event(std::uint64_t number) const { return pending(number).event; }
  const std::string& activity(std::uint64_t number) const { return pending(number).activity; }
  // What the stream is at, by what was not reached yet.
  std::string activity() const;

  // The event of a timed mark; null for others and for those that were forgotten.
  CudaEvent moment(std::uint64_t number) const;
  void forget_times();

  // Whether the stream has nothing to do, or says again that it failed. What it said is appended.
  bool idle(std::vector<std::string>& failures);
  // Idle. What it said is appended.
  void destroy(std::vector<std::string>& failures);

 private:
  struct Pending {
    CudaEvents::Owned event;
    std::string activity;
  };

  const Pending& pending(std::uint64_t number) const { return pending_[number - reached_ - 1]; }
  void drop_reached(std::uint64_t number);

  const CudaCheck& check_;
  CudaEvents& plain_;
  CudaEvents& timed_;
  const Lane lane_;
  CudaStream stream_ = nullptr;
  std::uint64_t reached_ = 0;
  bool failed_ = false;
  bool capturing_ = false;
  std::deque<Pending> pending_;  // of the numbers from reached_ + 1 on
  std::map<std::uint64_t, CudaEvents::Owned> moments_;
};

}  // namespace garonne::device
