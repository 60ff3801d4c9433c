// Who is missing where ranks wait for each other: a rank that was stopped, or hangs outside of
// communication, would else hold up all others without a word.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace garonne::dist {

class Communicator;
class Session;

// Ranks that wait long tell the first few ranks so, again and again. Whoever has not said so is not
// waiting, hence is the one that is waited for. Nothing is sent as long as nobody waits long.
class RollCall {
 public:
  // Collective over all ranks. `first_line`: seconds of waiting after which somebody says who is
  // missing, then again at doubling intervals.
  RollCall(Session& session, double first_line);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  // To be called a few times a second by a rank that has been waiting for so long. After `limit`
  // seconds, unless that is 0, it throws CommunicationError, which names who is missing. `doing`
  // says what this rank waits in.
  void waiting(double seconds, double limit, const std::function<std::string()>& doing);

 private:
  void begin();
  void report();
  void listen(double seconds);
  std::vector<int> missing(double seconds) const;
  bool speaks(const std::vector<int>& missing) const;

  Session& session_;
  std::unique_ptr<Communicator> communicator_;
  double first_line_;
  int listeners_;
  // Of the wait in progress, in its seconds.
  double last_ = 0;
  double next_report_ = 0;
  double next_line_ = 0;
  std::vector<double> heard_;  // by rank; negative = never
};

}  // namespace garonne::dist
