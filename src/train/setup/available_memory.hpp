// What memory.budget = "auto" goes by: the least of what the node has free and of every limit that
// this process is under.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace garonne::train {

// Where the system is asked, so that a test can put a tree of its own there.
struct MemorySources {
  std::string proc = "/proc";
  std::string control_groups = "/sys/fs/cgroup";
  std::function<const char*(const char*)> environment;  // as std::getenv, which it is if empty
  // Limits of this process (RLIMIT_AS, RLIMIT_DATA) in bytes, without end if negative.
  std::int64_t address_space_bytes = -1;
  std::int64_t data_bytes = -1;

  // Those of this system and this process.
  static MemorySources of_this_process();
};

struct AvailableMemory {
  std::int64_t bytes = 0;  // of a rank; 0 where nothing is known
  std::string source;      // as "memory.max of /sys/fs/cgroup/job"
};

// The least, for each of `ranks_on_node` ranks (at least 1), of
// - MemAvailable of the node;
// - memory.max and memory.high (or version 1's memory.limit_in_bytes) of the control group and all
//   above it, less what is used there and cannot be dropped;
// - SLURM_MEM_PER_NODE, or SLURM_MEM_PER_CPU times SLURM_CPUS_ON_NODE (in MiB), less what the ranks
//   have already;
// - RLIMIT_AS and RLIMIT_DATA of the process, less what it has already: not divided.
// `bytes` is a multiple of the allocation granularity.
AvailableMemory available_memory(const MemorySources& sources, int ranks_on_node);

// A line for people: that memory.budget = "auto" came to `budget_bytes` a rank, and by what of this
// process.
std::string describe_automatic_budget(int ranks_on_node, std::int64_t budget_bytes);

}  // namespace garonne::train
