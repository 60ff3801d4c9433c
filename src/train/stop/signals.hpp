// Requests to stop from outside: SIGTERM, SIGINT, SIGHUP and SIGUSR1 leave a note that the run
// looks at.
#pragma once

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

namespace garonne::train {

enum class StopRequest {
  None,
  AfterStep,  // the step in progress is finished
  AtOnce,     // a kill follows soon: the step in progress is abandoned
};

// Handles the signals while it lives, then puts the former handlers back, but ignores those that
// would end the process: SIGUSR1, and where no exception is under way SIGTERM and SIGHUP, since
// what is left is the end of the process, whose exit code counts. SIGPIPE is ignored from the
// beginning on, for good: who reads what is printed may end first. One at a time. A launcher of
// parallel programs kills its processes soon after SIGTERM and SIGINT, so `launched` makes these
// and SIGHUP AtOnce; else all are AfterStep, and a second SIGINT ends the process as SIGINT does.
// Where SIGHUP is ignored, as under nohup, it stays so.
//
// The thread that makes it, and those that are started from there, receive none of them: they go to
// a thread of its own. Kernels made at run time may have other things in the register of the stack
// (oneDNN's inner products do for most of their time), and the kernel of the system writes what a
// handler returns to below whatever that register points at.
class SignalGuard {
 public:
  explicit SignalGuard(bool launched);
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  // The most urgent request so far. Any thread.
  StopRequest request() const;

 private:
  void receive();

  sigset_t former_mask_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace garonne::train
