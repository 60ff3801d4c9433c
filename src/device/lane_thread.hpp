// One lane: a thread that carries out what was put on it, in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/lane_clock.hpp"
#include "device/lateness.hpp"

namespace garonne::device {

class LaneThread {
 public:
  struct Work {
    std::uint64_t number = 0;
    std::vector<Mark> after;
    std::function<void()> function;  // empty: nothing but the order
    std::string activity;
  };

  // `lateness` may be empty: no delays. The clock outlives the thread.
  LaneThread(Lane lane, LaneClock& clock, std::function<Lateness(Mark)> lateness);
  // Ends the piece under way and drops the others. The clock is stopped before.
  ~LaneThread();
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;

  // Numbers ascend.
  void put(Work work);
  // Of what is under way or next; empty where nothing is.
  std::string activity() const;

 private:
  void serve();
  // Whether the lane goes on.
  bool carry_out(Work work);
  bool take(Work& work);

  const Lane lane_;
  LaneClock& clock_;
  const std::function<Lateness(Mark)> lateness_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::string activity_;
  bool ending_ = false;

  std::thread thread_;  // last: it uses all the others
};

}  // namespace garonne::device
