// A job script for Slurm that trains a run on the grid that it was planned for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/model/job_facts.hpp"

namespace garonne::plan {

struct JobScript {
  std::string name;  // of the job
  std::string run_file;
  std::vector<std::string> options;  // of `garonne train`, in its order
  std::string garonne;               // the program
  std::string folder;                // that the options' paths begin in
  std::int64_t ranks = 1;
  std::int64_t ranks_on_node = 1;  // at most; a last node may have fewer
  int threads = 1;                 // of a rank, a core each
  bool on_gpus = false;            // one a rank
  std::int64_t memory_bytes = 0;   // of a node; 0 = as the site has it
  double step_seconds = 0;         // planned; 0 = not known
  std::int64_t steps = 0;
  std::int64_t checkpoint_bytes = 0;  // of a rank
  std::int64_t minutes = 0;           // time limit; 0 = by steps, within the site's
  JobFacts facts;                     // of the machine; its launcher may be empty for srun
};

// Minutes that the job asks for: those that were given, else all steps and a quarter more, ten
// minutes and what fills up ten, within the site's limit, or a day where it has none; four hours
// where seconds are not known.
std::int64_t job_minutes(const JobScript& job);
// Before the time limit, that the ranks are warned: two steps and two checkpoints at 100 MB/s, the
// minute that Slurm may be early and two of start and end; at most half the time.
std::int64_t warning_seconds(const JobScript& job);

// Starts that all steps take, each warned before its limit; 0 where seconds are not known.
std::int64_t job_starts(const JobScript& job);

// A word of a shell, quoted where it has to be. Throws ConfigError (--sbatch) as to_sbatch() does.
std::string shell_word(const std::string& text);

// The text of the script, whole in one file. Throws ConfigError (--sbatch) for names that cannot
// stand in one, as those with line breaks.
std::string to_sbatch(const JobScript& job);

}  // namespace garonne::plan
