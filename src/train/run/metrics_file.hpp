// The rows of metrics.jsonl, one a step.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace garonne::train {

// What speed is counted in.
inline constexpr const char* token_item = "tok";
inline constexpr const char* sample_item = "sample";

// What a start of the run cost, in the row of its first step.
struct StartMetrics {
  double ready_seconds = 0;     // from the start of the program to that of the step
  std::int64_t lost_steps = 0;  // that an earlier start did after the last checkpoint
  double lost_seconds = 0;      // of those
};

// A rank that was found to be slower than the others of its stage for long (train/run/slow_ranks).
struct SlowRankMetrics {
  int rank = 0;
  std::string place;  // "[rank 1/4 node07 data 1, pipeline 0, tensor 0]"
  double times = 0;   // what it took, in medians of the others
};

// One row of metrics.jsonl. Bytes are those of the rank with the largest planned peak.
struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  double seconds = 0;
  double data_seconds = 0;  // of them waiting for samples, on the rank that waited longest
  double samples_per_second = 0;
  double items_per_second = 0;  // tokens, where samples are made of them
  std::string item;             // "tok" or "sample"
  std::int64_t peak_bytes = 0;
  std::int64_t planned_peak_bytes = 0;
  std::optional<double> validation_loss;
  double time = 0;  // when the step had ended, seconds since 1970 UTC; 0 = not known
  // Share of the fastest matrix products measured that the model's operations reached, each counted
  // once whatever was run again; 0 = not known.
  double utilisation = 0;
  // Between the step before and this one, on rank 0.
  double checkpoint_seconds = 0;
  double validation_seconds = 0;
  // From the end of `seconds` of the step before to the beginning of this one, less checkpoints and
  // the validation there: records, the lock, ranks that meet. On rank 0.
  double between_seconds = 0;
  std::optional<StartMetrics> start;
  std::vector<SlowRankMetrics> slow_ranks;  // found after this step
};

// metrics.jsonl, cut after `last_step` and then appended to, a line at a time.
class MetricsFile {
 public:
  // Keeps the rows up to `last_step`, in the order of their steps; of several of one step the last.
  // Lines that are no rows are moved to metrics.jsonl.damaged, which `warn` hears with their
  // numbers; only a last line that was cut short goes without a word. `warn` also hears of rows
  // that go where `last_step` is 0, and of rows up to `last_step` that are not there. Throws
  // IoError.
  MetricsFile(const std::string& run_directory, std::int64_t last_step,
              const std::function<void(const std::string&)>& warn,
              std::chrono::milliseconds look_every = std::chrono::seconds(1));
  // A file that was removed is begun anew, which `warn` hears; whether it is there is looked at
  // once in `look_every`. A row of the step that was appended last takes the place of that one's.
  // Throws IoError, as for a full disk.
  void append(const StepMetrics& metrics);

  // Of the rows that were cut off.
  std::int64_t lost_steps() const { return lost_steps_; }
  double lost_seconds() const { return lost_seconds_; }

 private:
  std::string path_;
  std::function<void(const std::string&)> warn_;
  std::chrono::milliseconds look_every_;
  std::chrono::steady_clock::time_point looked_;
  std::ofstream file_;
  std::int64_t last_step_ = 0;   // that was appended
  std::int64_t last_begin_ = 0;  // of its row in the file
  std::int64_t lost_steps_ = 0;
  double lost_seconds_ = 0;
};

// The rows of metrics.jsonl; a last line that was cut short is left out. Throws IoError when the
// file is missing, holds no row, or a line is not understood; where the run has checkpoints all the
// same, the message says so.
std::vector<StepMetrics> read_metrics(const std::string& run_directory);

}  // namespace garonne::train
