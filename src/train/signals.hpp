// Requests to stop from outside: SIGTERM, SIGINT and SIGUSR1 set a flag that the loop looks at.
#pragma once

namespace garonne::train {

// Handles the signals while it lives and puts the former handlers back. One at a time a process.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  bool stop_requested() const;
};

}  // namespace garonne::train
