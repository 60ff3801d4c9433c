// Requests to stop from outside: SIGTERM, SIGINT, SIGHUP and SIGUSR1 leave a note that the run
// looks at.
#pragma once

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
class SignalGuard {
 public:
  explicit SignalGuard(bool launched);
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  // The most urgent request so far. Any thread.
  StopRequest request() const;
};

}  // namespace garonne::train
