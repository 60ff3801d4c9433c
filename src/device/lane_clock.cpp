#include "device/lane_clock.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace garonne::device {
namespace {

// A wait of a century overflows nothing; condition variables with an infinite one do.
constexpr std::chrono::duration<double> for_ever(3e9);

std::chrono::steady_clock::time_point from_now(std::chrono::duration<double> length) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::min(length, for_ever));
}

}  // namespace

void LaneClock::reach(Mark mark) {
  {
    const std::lock_guard lock(mutex_);
    std::uint64_t& reached = reached_[lane_index(mark.lane)];
    expect(mark.number > reached, "a lane went backwards");
    reached = mark.number;
  }
  changed_.notify_all();
}

void LaneClock::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  changed_.notify_all();
}

void LaneClock::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

bool LaneClock::over() const {
  const std::lock_guard lock(mutex_);
  return is_over();
}

bool LaneClock::reached(Mark mark) {
  const std::lock_guard lock(mutex_);
  throw_failure();
  ask_for(mark);
  return has(mark);
}

bool LaneClock::wait(Mark mark, std::chrono::duration<double> limit) {
  std::unique_lock lock(mutex_);
  ask_for(mark);
  const bool ended =
      changed_.wait_until(lock, from_now(limit), [&] { return failure_ || has(mark); });
  throw_failure();
  return ended;
}

bool LaneClock::ends(Mark mark, std::chrono::duration<double> limit) {
  std::unique_lock lock(mutex_);
  ask_for(mark);
  return changed_.wait_until(lock, from_now(limit), [&] { return is_over() || has(mark); });
}

bool LaneClock::follow(std::span<const Mark> marks) {
  std::unique_lock lock(mutex_);
  for (const Mark mark : marks) ask_for(mark);
  changed_.wait(lock, [&] {
    return is_over() || std::ranges::all_of(marks, [&](Mark mark) { return has(mark); });
  });
  return !is_over();
}

bool LaneClock::sleep(std::chrono::duration<double> length) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_until(lock, from_now(length), [&] { return is_over(); });
}

bool LaneClock::sleep_until_asked_for(Mark mark, std::chrono::duration<double> limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, from_now(limit), [&] {
    return is_over() || asked_for_[lane_index(mark.lane)] >= mark.number;
  });
  return !is_over();
}

void LaneClock::ask_for(Mark mark) {
  std::uint64_t& asked_for = asked_for_[lane_index(mark.lane)];
  if (mark.number <= asked_for) return;
  asked_for = mark.number;
  changed_.notify_all();
}

bool LaneClock::has(Mark mark) const {
  return reached_[lane_index(mark.lane)] >= mark.number;
}

bool LaneClock::is_over() const {
  return stopped_ || failure_;
}

void LaneClock::throw_failure() const {
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace garonne::device
