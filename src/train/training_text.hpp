// What training says of itself: how it starts, each step, and plan beside measurement at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/device.hpp"
#include "exec/executor.hpp"
#include "nn/gemm/product.hpp"
#include "plan/program/program.hpp"
#include "train/run/metrics_file.hpp"
#include "train/setup/planning.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

// What a run starts with, on one rank.
struct PlannedTraining {
  const RunConfig& config;
  const Setup& whole;  // of all stages
  const Choice& choice;
  const plan::Program& program;
  const nn::Products& products;
  int ranks_on_node = 1;
};

// Some lines, before there is a plan: version, model, data, grid. `whole` is of all stages.
std::string model_text(const RunConfig& config, const Setup& whole, const Workload& workload,
                       int threads);

// Some lines: products, plan.
std::string plan_text(const PlannedTraining& planned);

// The first line, before anything is read or measured.
std::string first_text(const RunConfig& config, int ranks);

// As 0:07:31, or 3 d 04:10:00 from a day on.
std::string duration_text(double seconds);

// A line. `seconds_left`: of the steps to come, as those before went; below 0 where that is not
// known.
std::string step_text(const StepMetrics& metrics, std::int64_t steps, double seconds_left);

// What was done in `seconds`, and what can be done next.
std::string end_text(const RunConfig& config, std::int64_t step, double seconds,
                     const Workload& workload);

// What helps after a loss or a gradient that was not finite; `saved_step`: of the checkpoint that
// the same command would go on from, 0 = none.
std::string not_finite_advice(const RunConfig& config, std::int64_t saved_step);

// Where a checkpoint found no space, which older ones could go; `failure` is what failed. Empty
// where that was something else.
std::string no_space_advice(const std::string& failure, const RunConfig& config);

// The largest bytes of one rank over a whole run, validation included.
struct PeakBytes {
  struct Below {
    Tier tier = Tier::Host;
    std::int64_t planned = 0;
    std::int64_t measured = 0;
  };
  std::int64_t planned = 0;
  std::int64_t measured = 0;
  std::vector<Below> below;  // tiers in which the Program has something
  // What checkpoints are written from; 0 where training waits for them.
  std::int64_t copy_planned = 0;
  std::int64_t copy_measured = 0;
};

// Some lines; `peaks` by rank, `program` of this one, `last` and `median_seconds` of the steps of
// this run.
std::string summary_text(const std::vector<PeakBytes>& peaks, std::int64_t budget_bytes,
                         const plan::Program& program, double median_seconds,
                         const exec::StepOutputs& last);

}  // namespace garonne::train
