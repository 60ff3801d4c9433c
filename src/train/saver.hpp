// Saves a run: in the loop by all ranks together, or apart from it by processes that outlive their
// launcher.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dist/session.hpp"
#include "exec/model_state.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/checkpoint_keeper.hpp"
#include "train/run/metrics_file.hpp"
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
  Manifest manifest;                   // but for the step
  CheckpointKeeper* keeper = nullptr;  // on rank 0
};

class Saver {
 public:
  // `step`: whose checkpoint is in place. Changes outside are made as the watch's gate allows.
  Saver(SavedRun run, std::int64_t step, dist::Session& session, StopWatch& stop);

  // The checkpoint after a step, then old ones go. Collective over all ranks; errors are those of
  // save_checkpoint.
  void save(std::int64_t step);
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
  Manifest manifest_of(std::int64_t step) const;
  Together members() const;
  Together together();

  SavedRun run_;
  dist::Session& session_;
  StopWatch& stop_;
  std::atomic<std::int64_t> saved_step_;
};

}  // namespace garonne::train
