#include "dist/launcher.hpp"

#include <array>
#include <cstdlib>

namespace garonne::dist {
namespace {

std::optional<int> read_count(const EnvironmentReader& read, const char* name) {
  const char* text = name ? read(name) : nullptr;
  if (!text) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0 || value > 100'000'000) return std::nullopt;
  return static_cast<int>(value);
}

struct Trace {
  const char* variable;
  const char* size;  // the variable with the number of processes; null where there is none
  const char* rank;  // and the one with the number of this process
};

// The closest launcher comes first: mpirun inside a Slurm allocation shows both.
constexpr std::array traces{
    Trace{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},  // Open MPI
    Trace{"PMI_RANK", "PMI_SIZE", "PMI_RANK"},           // MPICH, Intel MPI, srun --mpi=pmi2
    Trace{"PALS_RANKID", "PALS_NRANKS", "PALS_RANKID"},  // Cray PALS
    Trace{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},  // MVAPICH
    Trace{"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"},                  // Flux
    Trace{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"},     // IBM jsrun
};

Launcher launched(const EnvironmentReader& read, const char* variable, const char* size,
                  const char* rank) {
  Launcher launcher{variable, read_count(read, size), rank, read_count(read, rank), {}};
  if (const char* space = read("PMIX_NAMESPACE")) {
    launcher.job = std::string("PMIX_NAMESPACE=") + space;
  }
  return launcher;
}

}  // namespace

std::optional<Launcher> detect_launcher() {
  // Before any thread of ours changes the environment.
  return detect_launcher(
      [](const char* name) { return std::getenv(name); });  // NOLINT(concurrency-*)
}

std::optional<Launcher> detect_launcher(const EnvironmentReader& read) {
  for (const Trace& trace : traces) {
    if (read(trace.variable)) return launched(read, trace.variable, trace.size, trace.rank);
  }
  // Slurm names a rank and the allocation's tasks in batch scripts too, where nothing was launched
  // and commands such as `garonne plan` run alone; only a step says how many tasks it has.
  const std::optional<int> step_tasks = read_count(read, "SLURM_STEP_NUM_TASKS");
  if (read("SLURM_PROCID") && step_tasks && *step_tasks > 1) {
    return launched(read, "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
  }
  if (read("PMIX_RANK")) return launched(read, "PMIX_RANK", nullptr, "PMIX_RANK");
  return std::nullopt;
}

}  // namespace garonne::dist
