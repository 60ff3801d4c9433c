// Saves a run: in the loop by all ranks together, beside it while it goes on, or apart from it by
// processes that outlive their launcher.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/session.hpp"
#include "exec/model_state.hpp"
#include "train/checkpoint/background_writer.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/checkpoint_keeper.hpp"
#include "train/run/metrics_file.hpp"
#include "train/run/run_lock.hpp"
#include "train/setup/planning.hpp"
#include "train/stop/file_meeting.hpp"
#include "train/stop/stop_watch.hpp"

namespace garonne::train {

// What a saver saves, and with what it says where that came from. All must outlive it.
struct SavedRun {
  const RunConfig& config;
  const Setup& setup;  // of this rank's stage
  const exec::ModelState& state;
  std::vector<StateSpec> states;       // of the optimizer
  Manifest manifest;                   // but for the step and the time
  CheckpointKeeper* keeper = nullptr;  // on rank 0
  RunLock* lock = nullptr;             // likewise
  // For the copy of what this rank writes (train/plans/saving_plan.hpp); none where the loop waits
  // for its checkpoints. All ranks have one or none has.
  std::optional<std::span<std::byte>> copy_room = {};
};

// A checkpoint that is in its place.
struct SavedStep {
  std::int64_t step = 0;
  double seconds = 0;         // from its beginning on
  double waited_seconds = 0;  // of them, by the loop
};

class Saver {
 public:
  // `step`: whose checkpoint is in place. Changes outside are made as the watch's gate allows.
  Saver(SavedRun run, std::int64_t step, dist::Session& session, StopWatch& stop);
  // What is being written beside the loop is abandoned.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // The checkpoint after a step, then old ones go. Nothing is being written. Collective over all
  // ranks; errors are those of save_checkpoint.
  SavedStep save(std::int64_t step);

  // The same beside the loop: begin() copies the state and returns, a thread writes, and finish()
  // waits for it and puts the checkpoint in its place. One at a time.
  bool can_begin() const { return run_.copy_room.has_value(); }
  // Collective over all ranks; IoError on all.
  void begin(std::int64_t step);
  // Whether there is one to be finished; alike on all ranks.
  bool under_way() const { return begun_.has_value(); }
  // Of this rank's part of it; whoever asks adds the ranks' answers up by max.
  enum Progress : std::int64_t { Done, Writing, Failed };
  std::int64_t progress() const;
  // Collective over all ranks; errors are those of save_checkpoint, and nothing is under way then.
  SavedStep finish();
  // Ends the writing as soon as it can be ended. Any thread.
  void abandon() { writer_.abandon(); }

  // The same state in the place of parameters, as gradients are, without optimizer states, as a
  // checkpoint in another folder. Collective over all ranks.
  void save_other(const std::string& folder, const exec::ModelState& state, std::int64_t step);
  // In a process that has only a copy of this one's memory. Collective over the meeting.
  // `unwritten`: the row of metrics.jsonl of a step that may not be there yet.
  void save_apart(std::int64_t step, const std::optional<StepMetrics>& unwritten,
                  FileMeeting& meeting) const;

  // The last step whose checkpoint is in place. Any thread.
  std::int64_t saved_step() const { return saved_step_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Begun {
    PartialCheckpoint checkpoint;
    Clock::time_point since;
    double waited_seconds = 0;
  };

  void expect_time_to_write();
  void leave();
  void is_in_place(std::int64_t step);
  Manifest manifest_of(std::int64_t step) const;
  CollectivePhases members() const;
  CollectivePhases together();

  SavedRun run_;
  dist::Session& session_;
  StopWatch& stop_;
  std::atomic<std::int64_t> saved_step_;
  std::optional<Begun> begun_;
  BackgroundWriter writer_;
};

}  // namespace garonne::train
