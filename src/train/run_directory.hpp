// A run directory: what is in it, how a used one is continued, and the rows of metrics.jsonl.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "train/checkpoint.hpp"

namespace garonne::train {

// What speed is counted in.
inline constexpr const char* token_item = "tok";
inline constexpr const char* sample_item = "sample";

// One row of metrics.jsonl. Bytes are the largest over ranks.
struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  double seconds = 0;
  double samples_per_second = 0;
  double items_per_second = 0;  // tokens, where samples are made of them
  std::string item;             // "tok" or "sample"
  std::int64_t peak_bytes = 0;
  std::int64_t planned_peak_bytes = 0;
  std::optional<double> validation_loss;
};

// Where a run starts: nothing, or a verified checkpoint.
struct StartingPoint {
  std::int64_t step = 0;
  std::string checkpoint;  // empty = from the seed
  Manifest manifest;
};

// Looks at the directory by the rules for used ones: the newest checkpoint that verifies, damaged
// ones named through `note` and skipped; throws ConfigError for resume = "never" in a directory
// that is not empty and for keys that may not change, IoError when checkpoints are there and none
// verifies.
StartingPoint find_starting_point(const RunConfig& config,
                                  const std::function<void(const std::string&)>& note);

// Makes the directory and writes config.toml. Throws IoError.
void prepare_run_directory(const RunConfig& config);

// metrics.jsonl, cut after `last_step` and then appended to, a line at a time.
class MetricsFile {
 public:
  MetricsFile(const std::string& run_directory, std::int64_t last_step);
  void append(const StepMetrics& metrics);

 private:
  std::string path_;
  std::ofstream file_;
};

// The rows of metrics.jsonl; a last line that was cut short is left out. Throws IoError when the
// file is missing, holds no row, or a line is not understood.
std::vector<StepMetrics> read_metrics(const std::string& run_directory);

// Reads the configuration that a run directory was made with. Throws IoError when it is no run
// directory.
RunConfig run_directory_config(const std::string& run_directory);

}  // namespace garonne::train
