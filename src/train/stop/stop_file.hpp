// What a run directory says about stopping: the request of `garonne stop`, where a run has stopped,
// and a state that is still being saved by processes whose launcher is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace garonne::train {

// `<run>/stop`: the run stops after the step in progress, and removes the file when it has.
// Throws IoError where the file cannot be written, where the folder is no run directory, and where
// no run works in it.
void ask_to_stop(const std::string& run_directory);
bool is_asked_to_stop(const std::string& run_directory);
void forget_stop_request(const std::string& run_directory);
// Whether a run works in the folder, as far as can be told from here: by its lock, unless the
// holder is surely gone.
bool may_be_running(const std::string& run_directory);

// `<run>/stopped`: the step after which the run has stopped on request, with its checkpoint in
// place; there until the run is started again. Writing throws IoError.
void note_stopped(const std::string& run_directory, std::int64_t step);
std::optional<std::int64_t> stopped_step(const std::string& run_directory);
void forget_stopped(const std::string& run_directory);

// Where the ranks meet that save the state after a step without their launcher. `token` differs
// from run to run.
std::string parting_folder(const std::string& run_directory, std::int64_t step,
                           const std::string& token);
// What ends the names of half-written checkpoints of theirs.
inline constexpr const char* parting_suffix = "-parting";

// Half-written checkpoints that are none of theirs, which a loop that is held has begun. As far as
// they can be removed: the next start of the run removes the rest.
void remove_begun(const std::string& run_directory);

// Signs of life of such ranks, in the folder where they meet, from construction to destruction.
class PartingPulse {
 public:
  explicit PartingPulse(std::string folder);
  PartingPulse(const PartingPulse&) = delete;
  PartingPulse& operator=(const PartingPulse&) = delete;
  ~PartingPulse();

 private:
  struct Beat;
  std::unique_ptr<Beat> beat_;
};

// Waits until no state is being saved by such ranks; `note` hears of it. Returns the folders of
// those that gave no sign of life for `patience`, which are there still.
std::vector<std::string> await_parting(
    const std::string& run_directory, const std::function<void(const std::string&)>& note,
    std::chrono::milliseconds patience = std::chrono::seconds(20));
// Removes such folders, and what those ranks have left half-written; `warn` hears of what cannot be
// removed. The caller has the run directory to itself.
void remove_lost_parting(const std::string& run_directory, const std::vector<std::string>& folders,
                         const std::function<void(const std::string&)>& warn);

}  // namespace garonne::train
