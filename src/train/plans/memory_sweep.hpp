// Memory of a model over the size of its micro-batch and, of text, the length of its sequences.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "plan/model/cost_table.hpp"
#include "train/workload/data_facts.hpp"

namespace garonne::train {

// Which sizes are swept; the others stay as configured.
struct SweepAxes {
  bool batch = false;
  bool sequence = false;
};
// Reads "batch", "sequence" or both with a comma; throws ConfigError (--sweep) for anything else.
SweepAxes parse_sweep_axes(const std::string& text);

struct SweepCell {
  std::int64_t batch = 0;  // train.micro_batch
  std::int64_t sequence = 0;
  std::int64_t minimum_budget_bytes = 0;  // below it no plan exists
  std::int64_t fastest_peak_bytes = 0;    // of the fastest plan, as without a limit
  bool fits = false;
  bool measured = false;       // every node of this size is in the profile
  double fastest_seconds = 0;  // of a step by the fastest plan, where measured
};

struct MemorySweep {
  std::int64_t budget_bytes = 0;
  std::int64_t configured_batch = 0;
  std::int64_t configured_sequence = 0;
  std::vector<std::int64_t> batches;    // ascending
  std::vector<std::int64_t> sequences;  // ascending
  bool has_sequences = true;     // samples are made of tokens; else the one above means nothing
  std::vector<SweepCell> cells;  // by batch, then sequence
};

// Plans the configuration at powers of two around its own sizes, with as many micro-batches a step
// as configured. A model of fields has no axis of sequences (ConfigError). `progress` is told
// (done, all). Throws ConfigError as make_setup does.
MemorySweep memory_sweep(const RunConfig& config, const SweepAxes& axes, const DataFacts& facts,
                         int threads, const plan::CostTable& costs, std::int64_t budget_bytes,
                         const std::function<void(int, int)>& progress);

// The format "garonne.sweep" (docs/formats.md).
nlohmann::ordered_json to_json(const MemorySweep& sweep);
// Tables for a terminal.
std::string format_sweep(const MemorySweep& sweep);

}  // namespace garonne::train
