#include "device/threaded_device.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "device/lane_error.hpp"

namespace garonne::device {
namespace {

// Who waits for whom when a peer is gone is a matter of communication, all else of this process.
ExitCode code_of_wait(Lane lane) {
  return lane == Lane::Message || lane == Lane::Collective ? ExitCode::Communication
                                                           : ExitCode::Refused;
}

}  // namespace

ThreadedDevice::ThreadedDevice(LaneSettings settings) : settings_(std::move(settings)) {}

ThreadedDevice::~ThreadedDevice() {
  stop();
}

void ThreadedDevice::stop() {
  clock_.stop();
  for (auto& thread : threads_) thread.reset();
}

bool ThreadedDevice::calls_are_compute(Lane lane) const {
  return lane == Lane::Compute && !settings_.compute_thread;
}

void ThreadedDevice::end() noexcept {
  std::array<Mark, lane_count> all;
  for (std::size_t lane = 0; lane < all.size(); ++lane) all[lane] = mark(static_cast<Lane>(lane));
  clock_.follow(all);  // others have what they wait for, unless a lane has failed
  stop();
}

Queue ThreadedDevice::queue(Lane lane) const {
  return {kind(), nullptr, lane == Lane::Compute ? settings_.threads : 1};
}

// Kernels of the host have run when their calls return.
Mark ThreadedDevice::launched(Lane lane, const std::string&) {
  return mark(lane);
}

Mark ThreadedDevice::mark(Lane lane) {
  return {lane, put_[lane_index(lane)]};
}

Mark ThreadedDevice::next_mark(Lane lane) {
  return {lane, ++put_[lane_index(lane)]};
}

std::chrono::duration<double> ThreadedDevice::longest_wait() const {
  return std::chrono::duration<double>(settings_.longest_wait_seconds);
}

void ThreadedDevice::check(Mark mark) const {
  expect(mark.number <= put_[lane_index(mark.lane)],
         fmt::format("mark {} of the {} lane, which was given {} pieces of work", mark.number,
                     to_string(mark.lane), put_[lane_index(mark.lane)]));
}

void ThreadedDevice::wait(Mark mark) {
  check(mark);
  if (clock_.wait(mark, longest_wait())) return;
  throw_waited_too_long(mark.lane, activity_of(mark.lane));
}

std::string ThreadedDevice::activity_of(Lane lane) const {
  const auto& thread = threads_[lane_index(lane)];
  return thread ? thread->activity() : "";
}

void ThreadedDevice::throw_waited_too_long(Lane lane, const std::string& activity) const {
  throw LaneError(lane, activity.empty() ? "between two activities" : activity, code_of_wait(lane),
                  fmt::format("not done after a wait of {} s", settings_.longest_wait_seconds));
}

bool ThreadedDevice::done(Mark mark) {
  check(mark);
  return clock_.reached(mark);
}

void ThreadedDevice::order(Lane later, Mark earlier) {
  if (calls_are_compute(later)) {
    wait(earlier);
    return;
  }
  check(earlier);
  put(later, nullptr, fmt::format("order after the {} lane", to_string(earlier.lane)), {earlier});
}

Mark ThreadedDevice::put_copy(Lane lane, Span to, Span from, std::string activity,
                              std::span<const Mark> after) {
  return put_run(
      lane,
      [this, lane, to, from] {
        if (to.bytes == 0) return;
        if (settings_.copy) {
          settings_.copy(lane, to, from);
        } else {
          std::memcpy(to.data, from.data, static_cast<std::size_t>(to.bytes));
        }
      },
      std::move(activity), after);
}

Mark ThreadedDevice::put_run(Lane lane, std::function<void()> work, std::string activity,
                             std::span<const Mark> after) {
  if (calls_are_compute(lane)) return run_here(work, after);
  for (const Mark mark : after) check(mark);
  std::vector<Mark> follows(after.begin(), after.end());
  if (lane != Lane::Compute) follows.push_back(mark(Lane::Compute));
  return put(lane, std::move(work), std::move(activity), std::move(follows));
}

Mark ThreadedDevice::run_here(const std::function<void()>& work, std::span<const Mark> after) {
  for (const Mark mark : after) wait(mark);
  work();
  const Mark mark = next_mark(Lane::Compute);
  clock_.reach(mark);
  return mark;
}

Mark ThreadedDevice::put(Lane lane, std::function<void()> work, std::string activity,
                         std::vector<Mark> after) {
  auto& thread = threads_[lane_index(lane)];
  if (!thread) thread = std::make_unique<LaneThread>(lane, clock_, settings_.lateness);
  const Mark mark = next_mark(lane);
  thread->put({mark.number, std::move(after), std::move(work), std::move(activity)});
  return mark;
}

Mark ThreadedDevice::timed_mark(Lane lane) {
  const Mark mark{lane, put_[lane_index(lane)] + 1};
  return put_run(lane,
                 [this, mark] {
                   const std::lock_guard lock(times_mutex_);
                   times_[{mark.lane, mark.number}] = std::chrono::steady_clock::now();
                 },
                 "timed mark", {});
}

double ThreadedDevice::seconds(Mark from, Mark to) const {
  const std::lock_guard lock(times_mutex_);
  const auto begin = times_.find({from.lane, from.number});
  const auto end = times_.find({to.lane, to.number});
  expect(begin != times_.end() && end != times_.end(),
         "seconds between marks that are not timed or not reached");
  return std::chrono::duration<double>(end->second - begin->second).count();
}

void ThreadedDevice::forget_times() {
  const std::lock_guard lock(times_mutex_);
  times_.clear();
}

}  // namespace garonne::device
