// Training: the loop around the Program, from start-up to the summary.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/error.hpp"
#include "dist/session.hpp"
#include "train/checkpoint/tensor_names.hpp"
#include "train/run/step_tracer.hpp"

namespace garonne::train {

struct TrainOptions {
  std::string program_directory;  // where to write what was run; empty = <run>/program
  // Where to read the Programs to run; empty = they are planned.
  std::string given_programs;
  // Where to write the gradients of the first step that is run, as a checkpoint; empty = nowhere.
  std::string gradients_directory;
  AllowedTensors allowed;            // differences of the checkpoint that the run goes on from
  std::vector<std::string> changes;  // keys that may be others than those of the checkpoint
  TraceRequest trace;
  // What Prometheus collects, written again with each step but not more than once a second; empty =
  // nothing is.
  std::string prometheus_file;
  // A checkpoint, or a run directory with one, whose parameters a new run starts with; the
  // optimizer and the data are its own. Empty = from the seed. Not looked at where a run goes on.
  std::string init_from;
  // Keys of the model that may be others than those of that checkpoint
  // (train/initial_parameters.hpp).
  std::vector<std::string> init_changes;
};

// Trains as configured; collective over all ranks. Returns Done, or Requeue when it stopped on
// request after a durable checkpoint (stop_after, SIGTERM, SIGUSR1, SIGINT). Errors as in
// base/error.hpp; those of configuration, plan and data at start are agreed by all ranks.
ExitCode train(const RunConfig& config, dist::Session& session, const TrainOptions& options);

}  // namespace garonne::train
