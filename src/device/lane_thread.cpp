#include "device/lane_thread.hpp"

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <exception>
#include <utility>

#include "base/blocked_signals.hpp"
#include "device/lane_error.hpp"

namespace garonne::device {
namespace {

void prepare_this_thread(Lane lane) {
  block_all_signals();
#ifdef __linux__
  prctl(PR_SET_NAME, std::string(to_string(lane)).c_str());
#else
  (void)lane;
#endif
}

}  // namespace

LaneThread::LaneThread(Lane lane, LaneClock& clock, std::function<Lateness(Mark)> lateness)
    : lane_(lane), clock_(clock), lateness_(std::move(lateness)) {
  thread_ = std::thread([this] {
    prepare_this_thread(lane_);
    serve();
  });
}

LaneThread::~LaneThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LaneThread::put(Work work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

std::string LaneThread::activity() const {
  const std::lock_guard lock(mutex_);
  return activity_.empty() && !queue_.empty() ? queue_.front().activity : activity_;
}

void LaneThread::serve() {
  Work work;
  while (take(work) && carry_out(std::move(work))) {
  }
}

bool LaneThread::take(Work& work) {
  std::unique_lock lock(mutex_);
  activity_.clear();
  changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
  if (ending_) return false;
  work = std::move(queue_.front());
  queue_.pop_front();
  activity_ = work.activity;
  return true;
}

bool LaneThread::carry_out(Work work) {
  const Mark mark{lane_, work.number};
  const Lateness late = work.function && lateness_ ? lateness_(mark) : Lateness{};
  // Held back before it asks for what it follows, which would be held back no longer.
  if (late.until_asked_for &&
      !clock_.sleep_until_asked_for(mark, std::chrono::duration<double>(late.hold_seconds))) {
    return false;
  }
  if (!clock_.follow(work.after)) return false;
  if (late.seconds > 0 && !clock_.sleep(std::chrono::duration<double>(late.seconds))) return false;
  for (int yield = 0; yield < late.yields; ++yield) std::this_thread::yield();
  if (work.function) {
    if (const std::exception_ptr failure = failure_of(lane_, work.activity, work.function)) {
      clock_.fail(failure);
      return false;
    }
    work.function = nullptr;  // what it captured goes before the mark is reached
  }
  clock_.reach(mark);
  return true;
}

}  // namespace garonne::device
