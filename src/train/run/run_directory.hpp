// A run directory: what is in it, and how a used one is continued.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "device/gpu_facts.hpp"
#include "nn/gemm/product.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/run/changed_keys.hpp"

namespace garonne::train {

// Where a run starts: nothing, or a verified checkpoint.
struct StartingPoint {
  std::int64_t step = 0;
  std::string checkpoint;  // empty = from the seed
  Manifest manifest;
  std::vector<KeyChange> changes;  // of the keys, since it was saved
};

// Looks at the directory by the rules for used ones: the newest checkpoint that verifies, damaged
// ones and copies of other steps named through `note` and skipped; throws ConfigError for resume =
// "never" in a directory that holds more than a lock and for keys that may not change, IoError when
// checkpoints are there and none verifies, and when none is there though the run saved some.
StartingPoint find_starting_point(const RunConfig& config,
                                  const std::function<void(const std::string&)>& note,
                                  const AllowedChanges& allowed = {});

// The newest checkpoint of a run directory that verifies, with damaged ones and copies of other
// steps named through `note` and skipped; an empty one where there are no checkpoints. IoError,
// with `advice`: none of them verifies.
StartingPoint newest_whole_checkpoint(const std::string& run_directory,
                                      const std::function<void(const std::string&)>& note,
                                      const std::string& advice);

// Where the run in a directory took its first parameters from, by its own record or by that of its
// newest checkpoint; nothing where that was the seed. Throws IoError.
std::optional<Beginning> beginning_of_run(const std::string& run_directory);
// That checkpoint, verified. Throws IoError where it is gone, damaged, or another by now.
StartingPoint open_beginning(const std::string& run_directory, const Beginning& beginning);

// What has changed of the keys since the checkpoint was saved. Throws ConfigError for those that
// may not, IoError where the checkpoint's own are not understood.
std::vector<KeyChange> changes_since(const StartingPoint& start, const RunConfig& config,
                                     const AllowedChanges& allowed);

// The optimizer.name of the run that saved it. IoError.
std::string saved_optimizer(const StartingPoint& start);

// Throws ConfigError for a text that is no UTF-8, which no file of a run could hold.
void expect_storable(const RunConfig& config);

// In a run directory: the folder in which the run was started last.
inline constexpr const char* start_folder_file = "started_in";

// Makes the directory and writes config.toml, and the working directory, which the paths of the run
// are relative to. Throws IoError.
void prepare_run_directory(const RunConfig& config);

// choices.json: threads a rank, who computes the products, and the GPU, where there is one. IoError.
void write_choices(const std::string& run_directory, int threads, const nn::Products& products,
                   const std::optional<device::GpuFacts>& gpu);

// Reads the configuration that a run directory was made with. Throws IoError when it is no run
// directory.
RunConfig run_directory_config(const std::string& run_directory);

// A configuration of the run with its data as they are found from here: relative paths are those of
// the folder in which it was started, where they are there, else of the working directory, as of a
// run that was moved with its data.
RunConfig with_found_data(RunConfig config, const std::string& run_directory);

}  // namespace garonne::train
