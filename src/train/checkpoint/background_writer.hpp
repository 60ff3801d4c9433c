// Writes this rank's file of a checkpoint while whoever asked for it does other things.
#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "train/checkpoint/checkpoint_files.hpp"

namespace garonne::train {

// One file at a time, on a thread of its own, which talks to no other rank. Used by one thread but
// for abandon().
class BackgroundWriter {
 public:
  BackgroundWriter() = default;
  ~BackgroundWriter() { leave(); }
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  enum class State {
    Idle,     // nothing was begun since the last take()
    Writing,  // take() would wait
    Written,
    Failed,  // take() throws
  };
  State state() const { return state_; }

  // Into a file of the folder `partial`. The bytes of `tensors` stay as they are until take() has
  // returned. InternalError where something is under way.
  void begin(const std::string& partial, int rank, std::vector<RankTensor> tensors);
  // Until what is under way is done.
  void wait();
  // Waits, too. Throws what writing threw, IoError.
  RankFile take();
  // Abandons what is under way, and waits for the call of the system that it is in.
  void leave();

  // What is under way, and whatever is begun later, fails at its next piece. Any thread.
  void abandon() { abandoned_ = true; }

 private:
  std::atomic<State> state_{State::Idle};
  std::atomic<bool> abandoned_{false};
  RankFile written_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace garonne::train
