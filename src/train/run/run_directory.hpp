// A run directory: what is in it, and how a used one is continued.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/config.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace garonne::train {

// Where a run starts: nothing, or a verified checkpoint.
struct StartingPoint {
  std::int64_t step = 0;
  std::string checkpoint;  // empty = from the seed
  Manifest manifest;
};

// Looks at the directory by the rules for used ones: the newest checkpoint that verifies, damaged
// ones and copies of other steps named through `note` and skipped; throws ConfigError for resume =
// "never" in a directory that holds more than a lock and for keys that may not change, IoError when
// checkpoints are there and none verifies, and when none is there though the run saved some.
// `other_tensors`: the model and its optimizer may be others than those of the checkpoint.
StartingPoint find_starting_point(const RunConfig& config,
                                  const std::function<void(const std::string&)>& note,
                                  bool other_tensors = false);

// Throws ConfigError for keys that may not change where the tensors of the model and its optimizer
// are those of the checkpoint.
void expect_same_keys(const RunConfig& config, const StartingPoint& start);

// The optimizer.name of the run that saved it. IoError.
std::string saved_optimizer(const StartingPoint& start);

// Throws ConfigError for a text that is no UTF-8, which no file of a run could hold.
void expect_storable(const RunConfig& config);

// Makes the directory and writes config.toml, and the working directory, which the paths of the run
// are relative to. Throws IoError.
void prepare_run_directory(const RunConfig& config);

// Reads the configuration that a run directory was made with. Throws IoError when it is no run
// directory.
RunConfig run_directory_config(const std::string& run_directory);

// A configuration of the run with its data as they are found from here: relative paths are those of
// the folder in which it was started, where they are there, else of the working directory, as of a
// run that was moved with its data.
RunConfig with_found_data(RunConfig config, const std::string& run_directory);

}  // namespace garonne::train
