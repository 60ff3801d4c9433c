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

// Ranks that wait long tell a few ranks so, again and again: listeners, which lie far apart, since
// a node may hang as a whole. Whoever has not said so is not waiting, hence is the one that is
// waited for. It is asked, and a thread of it answers whatever else it does, with whether it waits
// itself and what it is in: a process that works for long or waits for a file system is told from
// one that is stopped or gone. Nothing is sent as long as nobody waits long.
class RollCall {
 public:
  // Collective over all ranks. `first_line`: seconds of waiting after which somebody says who is
  // missing, and again after as many. `doing`: what this rank is in, called on any thread.
  RollCall(Session& session, double first_line, std::function<std::string()> doing);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  // Hosts and coordinates of all ranks, by which those that are missing are named, once known.
  void set_places(std::vector<std::string> places) { places_ = std::move(places); }

  // To be called a few times a second by a rank that has been waiting for so long. Throws
  // CommunicationError, which names who is missing, once for `limit` seconds, unless that is 0,
  // nobody has answered that it is at work: all wait for each other, or who is missing does not
  // answer. Where `wants_answers`, also once somebody who is missing has not answered several
  // questions in `silence` seconds, which is before the first line.
  void waiting(double seconds, double limit, bool wants_answers);
  static constexpr double silence = 28;
  // The wait that `waiting` was called for has ended.
  void over();

 private:
  struct Sent;
  void begin();
  void answer();
  void send_answer(int rank);
  void drop_what_has_gone();
  void report();
  void ask(const std::vector<int>& ranks, double seconds);
  void hear_answers(double seconds);
  std::vector<int> others_of_listeners() const;
  std::string answers_of(const std::vector<int>& missing) const;
  std::string places_of(const std::vector<int>& ranks) const;
  std::vector<int> silent(const std::vector<int>& missing, double seconds) const;
  void listen(double seconds);
  std::vector<int> missing(double seconds) const;
  bool speaks(const std::vector<int>& missing) const;

  Session& session_;
  std::unique_ptr<Communicator> communicator_;
  double first_line_;
  std::function<std::string()> doing_;
  const std::vector<int> listeners_;  // ascending
  const bool listens_;                // this rank is one
  // Of the wait in progress, in its seconds.
  double last_ = 0;
  double next_report_ = 0;
  double next_line_ = 0;
  std::vector<double> heard_;  // by rank; negative = never
  double answered_ = 0;        // when somebody last answered
  double at_work_ = 0;         // when somebody last answered that it is at work
  bool spoke_ = false;         // when `waiting` was called last
  struct Questions {
    int unanswered = 0;
    double since = 0;   // the first of them
    std::string doing;  // as last answered
  };
  std::vector<Questions> questions_;         // by rank
  std::vector<std::string> last_heard_;      // by rank, in whatever wait
  std::vector<std::string> places_;          // by rank; empty = not known yet
  std::atomic<bool> waits_{false};           // this rank does
  std::vector<std::unique_ptr<Sent>> sent_;  // of the thread
  std::atomic<bool> ending_{false};
  std::thread thread_;  // last: it uses all the others
};

}  // namespace garonne::dist
