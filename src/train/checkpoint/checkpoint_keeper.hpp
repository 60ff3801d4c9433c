// What happens in a run directory once a checkpoint is written: the first is remembered, old ones
// go.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace garonne::train {

// Whether this run has ever saved a checkpoint there, though none may be left
// ("garonne.checkpoints", docs/formats.md).
bool has_saved_checkpoints(const std::string& run_directory);

// What a run that was killed has left half written or half removed goes. The caller has the run
// directory to itself.
void remove_left_over(const std::string& run_directory);

// On rank 0 of a run.
class CheckpointKeeper {
 public:
  CheckpointKeeper(std::string run_directory, std::function<void(const std::string&)> warn);

  // The run goes on from this checkpoint, which was verified. Throws IoError where that cannot be
  // remembered.
  void started_from(std::int64_t step);

  // After the checkpoint of `step` is in its place: removes what is older than the newest `keep`
  // whole ones up to it. Where `keep_minutes` is not 0, the first whole one of every so many
  // minutes since the run's first checkpoint stays for good, by the times in the manifests; those
  // that have none are not counted. Checkpoints that this process neither wrote nor verified before
  // are verified once, where a removal hangs on it. Left, and named in one warning each: folders
  // that are no checkpoints by their names, checkpoints of later steps, copies of other steps.
  // Throws IoError where the first one cannot be remembered.
  void saved(std::int64_t step, std::int64_t keep, std::int64_t keep_minutes = 0);

  // Removes the same after started_from(step), so that a run whose disk is full finds room.
  void prune(std::int64_t step, std::int64_t keep, std::int64_t keep_minutes = 0);

 private:
  void remember(std::int64_t step);
  void remember_beginning();
  std::int64_t time_of(std::int64_t step);
  std::optional<std::int64_t> window_of(std::int64_t step, std::int64_t minutes);
  bool stays_for_good(std::int64_t step, const std::vector<std::int64_t>& older,
                      std::int64_t minutes);
  void warn_once(const std::string& name, const std::string& why);
  void name_strangers(std::int64_t step);
  bool is_whole(std::int64_t step);
  bool is_copy(std::int64_t step);
  void remove(std::int64_t step);

  std::string run_directory_;
  std::function<void(const std::string&)> warn_;
  bool remembered_ = false;
  std::int64_t began_at_ = 0;                   // the run's first checkpoint; 0 = not yet known
  std::map<std::int64_t, std::int64_t> times_;  // by step; 0 = nobody said
  std::set<std::int64_t> whole_;
  std::set<std::int64_t> damaged_;
  std::set<std::string> named_;
};

}  // namespace garonne::train
