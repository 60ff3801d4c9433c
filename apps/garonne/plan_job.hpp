// `garonne plan --sbatch FILE`: a job script for the run and the grid that were planned.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "plan/grid/grid_candidate.hpp"
#include "train/setup/planning.hpp"

namespace garonne::apps {

struct JobOptions {
  std::string path;  // empty = none is written
  std::string time_limit;
  std::string launcher;
  // As `plan` got them.
  std::string cluster;  // file; empty = this machine
  std::string run_file;
  std::map<std::string, std::string> given;
};

// The options of `plan` for it.
std::shared_ptr<JobOptions> add_job_options(CLI::App& command);

// What was planned.
struct PlannedJob {
  RunConfig config;                // with the grid that was planned
  std::vector<std::string> found;  // options that say it, where the run file does not
  bool on_gpus = false;
  std::int64_t ranks_on_node = 1;
  int threads = 1;
  double step_seconds = 0;              // 0 = not known
  std::int64_t parameter_elements = 0;  // of the whole model, whatever the grid
  std::int64_t budget_bytes = 0;        // of a rank
  // Of a rank, for what is below a device with memory of its own; 0 = nothing, or not known.
  std::int64_t host_bytes = 0;
};

// `--grid.data 2` and so on.
std::vector<std::string> options_of(const plan::GridCandidate& candidate);

// Of the memory of the host that plans of a rank may take; 0 where they take none, or as much as
// there is on a host that nobody described.
std::int64_t host_bytes_of(const train::Setup& setup);

// Writes the script, where one is wanted, and returns the line that says so. Throws ConfigError for
// a time limit that is none, or above the cluster's.
std::string write_job(const JobOptions& options, const PlannedJob& planned);

}  // namespace garonne::apps
