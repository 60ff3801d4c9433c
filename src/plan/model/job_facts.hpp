// What a machine's jobs are started with, as its cluster file says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/toml.hpp"

namespace garonne::plan {

// What a job there is started with, which no plan depends on; empty or 0 where nobody said.
struct JobFacts {
  std::int64_t cores = 0;  // of a node, for the ranks on it
  std::string network;     // between nodes: one of job_networks()
  std::string interface;   // the network's device, where a node has several
  std::string launcher;    // one of job_launchers()
  std::string directives;  // options of sbatch, with blanks between them
  std::int64_t most_minutes = 0;
  bool requeues = true;  // jobs may be put into the queue again
};
const std::vector<std::string>& job_networks();
const std::vector<std::string>& job_launchers();
// Minutes of a time limit as Slurm takes it: MINUTES, H:MM:SS, D-H, D-H:MM or D-H:MM:SS, seconds
// rounded up; none where it is no such text or 0.
std::optional<std::int64_t> parse_time_limit(const std::string& text);
// As D-HH:MM:SS, without days where there are none.
std::string format_time_limit(std::int64_t minutes);

// The keys of a cluster file that say it, and one of them: ConfigError with the key for a value
// that is none, or that would begin another line in a script.
const std::vector<std::string>& job_keys();
void set_job_key(const TomlEntry& entry, JobFacts& facts);

// Those of a cluster file, whose other keys are left to parse_cluster(); errors are as there.
JobFacts parse_job_facts(const std::string& toml_text, const std::string& name);
JobFacts load_job_facts(const std::string& path);

}  // namespace garonne::plan
