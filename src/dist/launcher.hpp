// Who started this process: what a launcher of parallel programs leaves in the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace garonne::dist {

struct Launcher {
  std::string variable;       // the one it was recognised by, "OMPI_COMM_WORLD_SIZE"
  std::optional<int> size;    // processes it started, where it says so
  std::string rank_variable;  // the one with the number of this process, "OMPI_COMM_WORLD_RANK"
  std::optional<int> rank;    // that number
  std::string job;            // what all it started have alike, "PMIX_NAMESPACE=..."; may be empty
};

// How the environment is read: the name of a variable to its value, or null. std::getenv by
// default; tests bring their own.
using EnvironmentReader = std::function<const char*(const char*)>;

// Empty when no launcher of parallel programs left a trace. A Slurm batch script or interactive
// shell is no launcher, whatever the tasks of its allocation: only a step (srun) is.
std::optional<Launcher> detect_launcher();
std::optional<Launcher> detect_launcher(const EnvironmentReader& read);

}  // namespace garonne::dist
