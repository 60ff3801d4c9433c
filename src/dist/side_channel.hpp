// A small agreement beside the main line of a run, from a thread of its own and whatever the others
// wait for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace garonne::dist {

class Communicator;
class Session;

// Has a communicator of its own, so that what is under way elsewhere does not matter. Calls MPI on
// the calling thread.
class SideChannel {
 public:
  // Collective over all ranks of the session.
  explicit SideChannel(Session& session);
  // Collective, unless an exception is on its way or an exchange was given up.
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  // A number of every rank, by rank. Collective; waits for the others with little use of the
  // processor. Empty when `give_up` said so before all ranks were there; no exchange may follow
  // then. Throws CommunicationError.
  std::optional<std::vector<std::int64_t>> all_gather(std::int64_t mine,
                                                      const std::function<bool()>& give_up);

 private:
  std::unique_ptr<Communicator> communicator_;  // null without MPI
  int size_;
  bool given_up_ = false;
  int exceptions_at_start_;
};

}  // namespace garonne::dist
