// Watches for requests to stop beside the loop of steps: signals, and the file of `garonne stop`.
// Open MPI's mpirun kills its ranks a second after it told them to end, which is less than a step
// may take; so where a launcher tells the ranks to end, the step in progress is abandoned and the
// state before it saved by processes that outlive the launcher.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/session.hpp"
#include "dist/side_channel.hpp"
#include "train/stop/file_meeting.hpp"
#include "train/stop/signals.hpp"
#include "train/stop/step_gate.hpp"

namespace garonne::train {

// What the watch is told of the run. The functions are called on its thread.
struct WatchedTraining {
  std::int64_t first_step = 0;  // that is finished at the start
  std::int64_t last_step = 0;
  // The last step whose checkpoint is in place.
  std::function<std::int64_t()> saved_step;
  // Writes the checkpoint of the state after the step; in a process of its own, which has nothing
  // of the run but a copy of its memory, and meets the other ranks only as given. Empty where that
  // is not enough, as for the state on a GPU: then every request is for the loop.
  std::function<void(std::int64_t step, FileMeeting& meeting)> save;
  // Throws IoError where the directory is another run's by now. In such a process, too; may be
  // empty.
  std::function<void()> expect_own_directory = {};
  // Whatever the loop has others write ends as soon as it can, and nobody waits for it; the loop is
  // held then, for good.
  std::function<void()> abandon = {};
  // Descriptors that `save` uses; the others are closed before it is called.
  std::vector<int> save_uses = {};
};

// From its construction on, signals do not end the process by themselves. Before training and
// after it, as long as nothing can be lost, a request ends the process at once, with exit code 75.
class StopWatch {
 public:
  // `leave` is called before a request ends the process, on the thread of the watch and at any
  // time. Collective over all ranks.
  StopWatch(dist::Session& session, std::string run_directory, std::function<void()> leave);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

  // From now on requests of `garonne stop` count, too; earlier ones are forgotten. To be called
  // once the run holds the lock of its directory.
  void watch_directory();

  // How to stop this run under the launcher it is under, for a line at the start.
  std::string how_to_stop() const;

  // Training begins: requests are now for the loop (requested()), or, where they are urgent, for
  // the watch itself, which then ends the process.
  void begin_training(WatchedTraining training);
  bool requested() const { return requested_; }
  StepGate& gate() { return *gate_; }

  // Training is over and everything saved. Collective over all ranks. Does not return where all
  // ranks were told to end before.
  void end_training();

 private:
  void watch();
  void part();
  void note_where_it_stopped(std::int64_t step) const;
  [[noreturn]] void end_process(ExitCode code, const std::string& text);
  void say(const std::string& text) const;

  dist::Session& session_;
  const std::string run_directory_;
  const std::function<void()> leave_;
  const std::string token_;
  const SignalGuard signals_;
  dist::SideChannel side_;
  WatchedTraining training_;
  std::unique_ptr<StepGate> gate_;
  std::atomic<bool> watches_directory_{false};
  std::atomic<bool> in_training_{false};
  std::atomic<bool> requested_{false};
  std::atomic<bool> retiring_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;  // last: it uses all the others
};

}  // namespace garonne::train
