// How far the lanes of a device that works with threads have come, and how one waits for another.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>

#include "device/device.hpp"

namespace garonne::device {

// Safe for all threads. After a failure or a stop no lane goes on.
class LaneClock {
 public:
  // The lane has done all up to the mark; its marks come in ascending order.
  void reach(Mark mark);
  // What the first failure was is what everybody is told.
  void fail(std::exception_ptr failure);
  void stop();
  bool over() const;  // stopped or failed

  // The host's side: throws the failure. `wait` is false where `limit` passed before.
  bool reached(Mark mark);
  bool wait(Mark mark, std::chrono::duration<double> limit);
  // Without a throw: whether the mark is reached, or the device over, before `limit` has passed.
  bool ends(Mark mark, std::chrono::duration<double> limit);

  // The lanes' side: false where the device is over.
  bool follow(std::span<const Mark> marks);
  bool sleep(std::chrono::duration<double> length);
  // Until somebody asks for the mark, or for a later one of its lane, or `limit` has passed.
  bool sleep_until_asked_for(Mark mark, std::chrono::duration<double> limit);

 private:
  // With the lock held.
  void ask_for(Mark mark);
  bool has(Mark mark) const;
  bool is_over() const;
  void throw_failure() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::uint64_t, lane_count> reached_{};
  std::array<std::uint64_t, lane_count> asked_for_{};
  std::exception_ptr failure_;
  bool stopped_ = false;
};

}  // namespace garonne::device
