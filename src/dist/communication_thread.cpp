#include "dist/communication_thread.hpp"

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <chrono>
#include <utility>

#include "base/awake_time.hpp"
#include "base/blocked_signals.hpp"
#include "base/error.hpp"
#include "dist/session.hpp"
#include "dist/watched_wait.hpp"

namespace garonne::dist {
namespace {

void prepare_this_thread() {
  block_all_signals();
#ifdef __linux__
  // Linux may stretch every sleep by 50 µs otherwise, as long as the sleep itself.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  prctl(PR_SET_NAME, "communication");
#endif
}

}  // namespace

CommunicationThread::CommunicationThread(Session& session)
    : session_(session), exceptions_at_start_(std::uncaught_exceptions()) {
  session_.attach(*this);
  thread_ = std::thread([this] { work(); });
}

CommunicationThread::~CommunicationThread() {
  const bool fails = std::uncaught_exceptions() > exceptions_at_start_;
  if (fails && leave_if_running()) {
    thread_.detach();
    session_.detach(*this);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    // The others may be gone: completing what is in flight could take for ever.
    if (fails && !unfinished_.empty() && !failure_) {
      failure_ = std::make_exception_ptr(
          CommunicationError("communication thread", "stopped because of another error"));
    }
  }
  submitted_.notify_all();
  thread_.join();
  session_.detach(*this);
  // MPI still knows the buffers of unfinished operations; the process is about to end.
  for (Submission& submission : active_) (void)submission.operation.release();
}

Ticket CommunicationThread::submit(std::unique_ptr<PendingOperation> operation) {
  expect(operation != nullptr, "an operation was expected");
  return enqueue({0, std::move(operation), {}});
}

Ticket CommunicationThread::enqueue(Submission submission) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    rethrow_failure();
    number = ++last_number_;
    submission.number = number;
    unfinished_.insert(number);
    queue_.push_back(std::move(submission));
  }
  submitted_.notify_all();
  return {number};
}

void CommunicationThread::rethrow_failure() const {
  if (failure_) std::rethrow_exception(failure_);
}

void CommunicationThread::wait(Ticket ticket) {
  if (ticket.number == 0) return;
  std::unique_lock lock(mutex_);
  ++waiting_;
  submitted_.notify_all();  // it may be asleep between two polls
  const auto over = [&] { return failure_ || !unfinished_.contains(ticket.number); };
  AwakeTime waited;
  WatchedWait watched(session_);
  while (!completed_.wait_for(lock, wait_watched_every, over)) {
    const double seconds = waited.seconds();
    lock.unlock();
    watched.lasts(seconds, true);
    lock.lock();
  }
  --waiting_;
  rethrow_failure();
}

bool CommunicationThread::done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  rethrow_failure();
  return !unfinished_.contains(ticket.number);
}

void CommunicationThread::run(std::function<void()> function) {
  std::exception_ptr thrown;
  wait(enqueue({0, nullptr, [&] {
                  try {
                    function();
                  } catch (...) {
                    thrown = std::current_exception();
                  }
                }}));
  if (thrown) std::rethrow_exception(thrown);
}

bool CommunicationThread::leave_if_running() {
  const std::lock_guard lock(call_->mutex);
  call_->left = call_->running;
  return call_->left;
}

// On the thread. Once it was left there is nothing to come back to but the end of the process.
void CommunicationThread::call(const std::function<void()>& function) {
  const std::shared_ptr<Call> mine = call_;
  const auto set_running = [&](bool running) {
    const std::lock_guard lock(mine->mutex);
    mine->running = running;
    return mine->left;
  };
  set_running(true);
  function();
  if (!set_running(false)) return;
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void CommunicationThread::work() {
  prepare_this_thread();
  std::unique_lock lock(mutex_);
  try {
    serve(lock);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    failure_ = std::current_exception();
    completed_.notify_all();
  }
}

void CommunicationThread::serve(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    submitted_.wait(lock, [&] { return stopping_ || !queue_.empty() || !active_.empty(); });
    if (failure_ || (stopping_ && queue_.empty() && active_.empty())) return;

    backoff_.set_urgent(waiting_ > 0);
    start_submitted(lock);
    lock.unlock();
    const bool moved = advance_active();
    lock.lock();
    for (const std::uint64_t number : just_completed_) unfinished_.erase(number);
    if (!just_completed_.empty()) completed_.notify_all();
    just_completed_.clear();

    if (moved) {
      backoff_.reset();
    } else if (!active_.empty()) {
      pause(lock);
    }
  }
}

// Takes what was submitted, up to a function that has to wait until nothing is in flight.
void CommunicationThread::start_submitted(std::unique_lock<std::mutex>& lock) {
  while (!queue_.empty() && (queue_.front().operation || active_.empty())) {
    Submission submission = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (submission.operation) {
      active_.push_back(std::move(submission));
      active_.back().operation->start();
      backoff_.reset();
    } else {
      call(submission.function);
      just_completed_.push_back(submission.number);
    }
    lock.lock();
  }
}

bool CommunicationThread::advance_active() {
  bool moved = !just_completed_.empty();
  for (std::size_t index = 0; index < active_.size();) {
    const Advance progress = active_[index].operation->advance();
    moved = moved || progress != Advance::None;
    if (progress != Advance::Done) {
      ++index;
      continue;
    }
    just_completed_.push_back(active_[index].number);
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  return moved;
}

void CommunicationThread::pause(std::unique_lock<std::mutex>& lock) {
  if (!queue_.empty() && queue_.front().operation) return;  // came while the lock was open
  bool yield = false;
  const auto length = backoff_.next(yield);
  if (length.count() > 0) {
    // A submission or somebody who starts to wait ends the sleep.
    submitted_.wait_for(lock, length);
  } else if (yield) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

}  // namespace garonne::dist
