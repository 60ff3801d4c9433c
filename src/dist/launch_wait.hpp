// Waits of a rank that cannot ask the others: while MPI starts and ends, and before the run watches
// its waits. For the room's own use.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/host_ranks.hpp"
#include "dist/launcher.hpp"

namespace garonne::dist {

// What there is to say of such a wait, and when: each minute who of this host was stopped or is in
// a call that nothing interrupts, by one rank of each host, and the end of it once somebody of this
// host has been stopped for half a minute.
class LaunchWait {
 public:
  // `looks` lists the ranks of this host.
  LaunchWait(std::string place, std::function<std::vector<HostRank>()> looks, int rank)
      : place_(std::move(place)), looks_(std::move(looks)), rank_(rank) {}

  // Why it is over, or nothing. To be called several times a second, with the seconds so far and
  // what the rank waits in; `limit` seconds end it too, unless that is 0.
  std::string ended_by(double seconds, const std::string& in, double limit);

  static constexpr double first_line = 60;
  static constexpr double silence = 28;

  // "[rank 1/4 node07] the start of MPI failed: ..."
  std::string message(const std::string& in, const std::string& why) const;

 private:
  const std::string place_;
  const std::function<std::vector<HostRank>()> looks_;
  const int rank_;
  double last_ = 0;
  double next_look_ = silence / 2;
  double next_line_ = first_line;
  double stopped_since_ = -1;  // negative: nobody was at the last look
};

// A call of MPI that waits for the others, between construction and destruction: a thread looks
// after it, and ends the process with ExitCode::Communication where the wait is over.
class WatchedCall {
 public:
  // `call` is for messages. `limit`: seconds, 0 = none.
  WatchedCall(LaunchWait& wait, std::string call, double limit);
  ~WatchedCall();
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  void watch();

  LaunchWait& wait_;
  const std::string call_;
  const double limit_;
  std::mutex mutex_;
  std::condition_variable returned_;
  bool over_ = false;
  std::thread thread_;  // last: it uses all the others
};

}  // namespace garonne::dist
