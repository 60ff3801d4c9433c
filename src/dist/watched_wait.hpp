// A wait for other ranks, on any thread, by which the ranks find out who is missing.
#pragma once

#include "dist/session.hpp"

namespace garonne::dist {

// Of waits that last beside each other one is watched, which is enough to say who is missing; when
// it is over, another one. Before the session watches, by what the host shows of its ranks. The
// session outlives it.
class WatchedWait {
 public:
  explicit WatchedWait(Session& session) : session_(session) {}
  // It is over.
  ~WatchedWait();
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;

  // To be called several times a second with how long it has lasted. Throws CommunicationError as
  // RollCall::waiting, with the limit of the session only where `limited`, or as LaunchWait says.
  void lasts(double seconds, bool limited);

 private:
  Session& session_;
  bool watched_ = false;
};

}  // namespace garonne::dist
