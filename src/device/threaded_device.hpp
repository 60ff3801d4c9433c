// What devices have in common whose lanes are threads, or some of them: Compute is the thread that
// calls (or, for tests, one of its own), every other lane is a thread that starts when it is first
// used.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "device/lane_clock.hpp"
#include "device/lane_thread.hpp"

namespace garonne::device {

// How a device with threads works.
struct LaneSettings {
  // Of kernels on Compute; 0 = all of the session's.
  int threads = 0;
  // What a wait for a lane may last at most.
  double longest_wait_seconds = std::numeric_limits<double>::infinity();
  // Compute is a lane as the others are, so that what is put there can be late, too: for work that
  // consists of `run` and `copy` alone.
  bool compute_thread = false;
  // Both are called on the lanes' threads. Empty: no delays; memcpy.
  std::function<Lateness(Mark)> lateness = nullptr;
  std::function<void(Lane, Span to, Span from)> copy = nullptr;
};

class ThreadedDevice : public Device {
 public:
  ~ThreadedDevice() override;

  Queue queue(Lane lane) const override;
  Mark launched(Lane lane, const std::string& activity) override;
  Mark mark(Lane lane) override;
  void order(Lane later, Mark earlier) override;
  void wait(Mark mark) override;
  bool done(Mark mark) override;
  Mark timed_mark(Lane lane) override;
  double seconds(Mark from, Mark to) const override;
  void forget_times() override;
  void end() noexcept override;

 protected:
  explicit ThreadedDevice(LaneSettings settings);

  // No lane touches anything any more. For destructors of derived classes, before what lanes use.
  void stop();
  bool calls_are_compute(Lane lane) const;
  // For copies that take their time: false where the device is over.
  bool sleep(double seconds) { return clock_.sleep(std::chrono::duration<double>(seconds)); }

  // For devices of which some lanes are no threads.
  LaneClock& clock() { return clock_; }
  // InternalError for a mark that was never given.
  void check(Mark mark) const;
  // The mark of what is put on the lane now.
  Mark next_mark(Lane lane);
  // On the lane's thread; it follows nothing but `after`, which are marks of threads.
  Mark put(Lane lane, std::function<void()> work, std::string activity, std::vector<Mark> after);
  std::chrono::duration<double> longest_wait() const;
  // What the lane's thread is at; empty between two activities.
  std::string activity_of(Lane lane) const;
  [[noreturn]] void throw_waited_too_long(Lane lane, const std::string& activity) const;

 private:
  using Moment = std::chrono::steady_clock::time_point;

  Mark put_copy(Lane lane, Span to, Span from, std::string activity,
                std::span<const Mark> after) override;
  Mark put_run(Lane lane, std::function<void()> work, std::string activity,
               std::span<const Mark> after) override;
  Mark run_here(const std::function<void()>& work, std::span<const Mark> after);

  const LaneSettings settings_;
  LaneClock clock_;
  std::array<std::uint64_t, lane_count> put_{};  // numbers of what was put last
  mutable std::mutex times_mutex_;
  std::map<std::pair<Lane, std::uint64_t>, Moment> times_;
  std::array<std::unique_ptr<LaneThread>, lane_count> threads_;  // last: they use the others
};

}  // namespace garonne::device
