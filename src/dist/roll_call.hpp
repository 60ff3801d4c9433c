// Who is missing where ranks wait for each other: a rank that was stopped, or hangs outside of
// communication, would else hold up all others without a word.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace garonne::dist {

class Communicator;
class Session;

// Ranks that wait long tell the first few ranks so, again and again. Whoever has not said so is not
// waiting, hence is the one that is waited for. It is asked, and a thread of it answers whatever
// else it does: a process that works for long or waits for a file system is told from one that is
// stopped or gone. Nothing is sent as long as nobody waits long.
class RollCall {
 public:
  // Collective over all ranks. `first_line`: seconds of waiting after which somebody says who is
  // missing, and again after as many.
  RollCall(Session& session, double first_line);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  // To be called a few times a second by a rank that has been waiting for so long. Throws
  // CommunicationError, which names who is missing, after `limit` seconds, unless that is 0, and
  // where `wants_answers`, once somebody who is missing has not answered several questions in
  // `silence` seconds, which is before the first line. `doing` says what this rank waits in.
  void waiting(double seconds, double limit, bool wants_answers,
               const std::function<std::string()>& doing);
  static constexpr double silence = 28;

 private:
  void begin();
  void answer();
  void report();
  void ask(const std::vector<int>& missing, double seconds);
  void hear_answers();
  std::vector<int> silent(const std::vector<int>& missing, double seconds) const;
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
  struct Questions {
    int unanswered = 0;
    double since = 0;  // the first of them
  };
  std::vector<Questions> questions_;  // by rank
  std::atomic<bool> ending_{false};
  std::thread thread_;  // last: it uses all the others
};

}  // namespace garonne::dist
