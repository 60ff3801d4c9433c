// The time of the lanes of one rank, from which both replays take their seconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/lane.hpp"

namespace garonne::plan {

// What is used by one thing after the other: a lane, or the link from a rank to another.
class Line {
 public:
  // When what is ready then starts.
  double start(double ready) const { return std::max(ready, free_at_); }
  void take(double until) { free_at_ = until; }

 private:
  double free_at_ = 0;
};

// Compute is where the rank is, and has the present time; the other lanes are lines beside it, all
// of one kind, so that another lane needs nothing here. Seconds from the start of the step.
class LaneClock {
 public:
  double now() const { return now_; }
  // The host puts the next instruction into a queue and never waits for the device; where the host
  // computes that takes no time. Returns when the instruction can start as far as it goes by both.
  double issue(double seconds) {
    issued_ += seconds;
    return std::max(now_, issued_);
  }
  // The host issues what follows no sooner.
  void hold_host(double until) { issued_ = std::max(issued_, until); }
  // Of one that was issued last. Compute stands still until it is.
  void compute(double seconds) {
    launch_ += std::max(0.0, issued_ - now_);
    now_ = std::max(now_, issued_) + seconds;
  }
  // Seconds for which Compute stood still for the host.
  double launch_seconds() const { return launch_; }
  // Stands still until then, where that is to come; returns for how long.
  double wait(double until) {
    const double before = now_;
    now_ = std::max(now_, until);
    return now_ - before;
  }

  Line& line(Lane lane) { return lines_[static_cast<std::size_t>(lane)]; }

 private:
  double now_ = 0;
  double issued_ = 0;
  double launch_ = 0;
  std::array<Line, most_lanes> lines_;
};

}  // namespace garonne::plan
