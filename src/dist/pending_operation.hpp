// What a communication thread works on: operations that move on a little at a time and never block,
// so that several are in flight at once. For the room's own use.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace garonne::dist {

enum class Advance { None, Some, Done };

class PendingOperation {
 public:
  PendingOperation() = default;
  PendingOperation(const PendingOperation&) = delete;
  PendingOperation& operator=(const PendingOperation&) = delete;
  virtual ~PendingOperation() = default;

  // Posts the first messages. Operations start in the order of their submission, on every rank:
  // that is what lets messages of several operations meet.
  virtual void start() = 0;
  // Looks at what has arrived and posts what follows; throws CommunicationError.
  virtual Advance advance() = 0;
};

// Waiting between polls: first polls again at once, then lets others run, then sleeps, the longer
// the longer nothing happens; ranks often have to share cores with each other and with the
// computation.
class Backoff {
 public:
  // Somebody waits: costs more processor time and less latency.
  explicit Backoff(bool urgent = false) : urgent_(urgent) {}

  void set_urgent(bool urgent) {
    if (urgent && !urgent_) reset();
    urgent_ = urgent;
  }
  void reset() { polls_ = 0; }
  // How long to sleep before the next poll; zero = poll again, after a yield where `yield` says so.
  std::chrono::microseconds next(bool& yield);

 private:
  bool urgent_;
  int polls_ = 0;
};

// Between two calls of what watches a wait.
inline constexpr std::chrono::milliseconds wait_watched_every{250};

// Starts the operation and polls it to its end on the calling thread. `waiting` is called with the
// seconds so far, a few times a second.
void complete(PendingOperation& operation, const std::function<void(double)>& waiting = {});

}  // namespace garonne::dist
