// The one thread of a process that makes MPI calls after start-up. MPI moves data only inside its
// calls, so this thread polls while the others compute, and sleeps between polls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "dist/pending_operation.hpp"

namespace garonne::dist {

class Session;

// Names an operation that was submitted; number 0 is one that was complete at once.
struct Ticket {
  std::uint64_t number = 0;
};

// Owned by the caller, destroyed before the session, shared by the transports of the process. While
// it lives, the session's own collectives run on it too. All members are safe to call from any
// thread, but what is collective must be submitted in the same order on all members, so in practice
// by one thread.
//
// An exception ends it without completing what is in flight: whoever owns buffers declares them
// before the thread, so that they outlive it then too.
class CommunicationThread {
 public:
  explicit CommunicationThread(Session& session);
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;
  // Completes what was submitted, unless an exception is on its way or the thread has failed. Where
  // one is on its way and a function of run() has not come back, as when another rank that it needs
  // was stopped, the thread is left where it is, since nothing ends a call of MPI.
  ~CommunicationThread();

  // Starts the operation after all earlier ones have started. Throws CommunicationError when the
  // thread has failed.
  Ticket submit(std::unique_ptr<PendingOperation> operation);

  // Blocks until the operation is complete. Throws the CommunicationError of the operation that
  // failed, whichever it was: nothing can be trusted after it.
  void wait(Ticket ticket);
  // Whether wait would return at once; throws as wait does.
  bool done(Ticket ticket);

  // Runs `function` on this thread after all that was submitted before is complete, waits for it
  // and rethrows what it throws. It may make any MPI calls; nothing else moves on meanwhile.
  void run(std::function<void()> function);

 private:
  struct Submission {
    std::uint64_t number = 0;
    std::unique_ptr<PendingOperation> operation;  // null: `function` is run alone
    std::function<void()> function;
  };

  // A function of run() while it is carried out, which the thread may be left in.
  struct Call {
    std::mutex mutex;
    bool running = false;
    bool left = false;
  };
  bool leave_if_running();
  void call(const std::function<void()>& function);

  Ticket enqueue(Submission submission);
  void rethrow_failure() const;  // with the lock held
  void work();
  void serve(std::unique_lock<std::mutex>& lock);
  void start_submitted(std::unique_lock<std::mutex>& lock);
  // Advances everything in flight once; whether anything moved.
  bool advance_active();
  void pause(std::unique_lock<std::mutex>& lock);

  Session& session_;
  const int exceptions_at_start_;

  std::mutex mutex_;
  std::condition_variable submitted_;
  std::condition_variable completed_;
  std::deque<Submission> queue_;
  std::set<std::uint64_t> unfinished_;  // numbers that were submitted and are not complete
  std::uint64_t last_number_ = 0;
  int waiting_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;

  const std::shared_ptr<Call> call_ = std::make_shared<Call>();  // outlives this where it is left

  std::vector<Submission> active_;             // touched by the thread only
  std::vector<std::uint64_t> just_completed_;  // likewise
  Backoff backoff_;                            // likewise

  std::thread thread_;  // last: it uses all the others
};

}  // namespace garonne::dist
