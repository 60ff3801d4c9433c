// A wait for other ranks, on any thread, by which the ranks find out who is missing.
#pragma once

#include "dist/session.hpp"

namespace garonne::dist {

// Of waits that last beside each other one is watched, which is enough to say who is missing; when
// it is over, another one. Of no effect in sessions that do not watch. The session outlives it.
class WatchedWait {
 public:
  explicit WatchedWait(Session& session) : session_(session) {}
  // It is over.
  ~WatchedWait();
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;

  // To be called several times a second with how long it has lasted. Throws CommunicationError as
  // RollCall::waiting, with the limit of the session only where `limited`.
  void lasts(double seconds, bool limited);

 private:
  Session& session_;
  bool watched_ = false;
};

}  // namespace garonne::dist
