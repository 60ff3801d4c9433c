// Time that a wait counts: while this process could run.
#pragma once

#include <algorithm>
#include <chrono>

namespace garonne {

class AwakeTime {
 public:
  using Clock = std::chrono::steady_clock;

  explicit AwakeTime(Clock::time_point now = Clock::now()) : last_(now) {}

  // Since construction or restart(). To be asked several times a second: of a longer pause between
  // two questions, in which the process was suspended, one second counts.
  Clock::duration passed(Clock::time_point now = Clock::now()) {
    passed_ += std::min<Clock::duration>(now - last_, std::chrono::seconds(1));
    last_ = now;
    return passed_;
  }
  double seconds() { return std::chrono::duration<double>(passed()).count(); }

  void restart(Clock::time_point now = Clock::now()) { *this = AwakeTime(now); }

 private:
  Clock::time_point last_;
  Clock::duration passed_{0};
};

}  // namespace garonne
