#include "plan_job.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <type_traits>
#include <variant>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/key_limits.hpp"
#include "base/toml.hpp"
#include "exec/gpu_library.hpp"
#include "plan/job/job_script.hpp"
#include "train/plans/grid_search.hpp"

namespace garonne::apps {
namespace {

namespace fs = std::filesystem;

// Of a parameter: its number in float32 and two states.
constexpr std::int64_t saved_bytes_per_element = 12;
// Of a process beside its budget: code of libraries, MPI, readers.
constexpr std::int64_t process_bytes = std::int64_t{1} << 30;
// Of one that has a GPU: its driver and runtime, and pinned memory for copies and messages.
constexpr std::int64_t gpu_process_bytes = 2 * process_bytes;

std::string own_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "garonne" : path.string();
}

std::int64_t given_minutes(const JobOptions& options, const plan::JobFacts& facts) {
  if (options.time_limit.empty()) return 0;
  const auto minutes = plan::parse_time_limit(options.time_limit);
  if (!minutes) {
    throw ConfigError("--time-limit", options.time_limit,
                      "is no time limit of Slurm such as 45, 20:00:00 or 1-12");
  }
  if (facts.most_minutes > 0 && *minutes > facts.most_minutes) {
    throw ConfigError(
        "--time-limit", options.time_limit,
        fmt::format("is more than the cluster's {}", plan::format_time_limit(facts.most_minutes)));
  }
  return *minutes;
}

// Those that were given for a plan are those of the training; what it found comes later and wins.
std::vector<std::string> train_options(const JobOptions& options, const PlannedJob& planned) {
  std::vector<std::string> result;
  for (const auto& [key, value] : options.given) {
    result.push_back("--" + key);
    result.push_back(value);
  }
  result.insert(result.end(), planned.found.begin(), planned.found.end());
  if (planned.on_gpus && planned.config.run.device != "cuda")
    result.insert(result.end(), {"--run.device", "cuda"});
  return result;
}

// Of a node; 0 where nobody said how much a rank may take of it.
std::int64_t node_bytes(const PlannedJob& planned, std::int64_t ranks) {
  if (planned.on_gpus)
    return planned.host_bytes > 0 ? ranks * (planned.host_bytes + gpu_process_bytes) : 0;
  if (planned.config.memory.budget == RunConfig::automatic_budget) return 0;
  return ranks * (planned.budget_bytes + process_bytes);
}

}  // namespace

std::shared_ptr<JobOptions> add_job_options(CLI::App& command) {
  const auto options = std::make_shared<JobOptions>();
  CLI::Option* path = command
                          .add_option("--sbatch", options->path,
                                      "write a job script for Slurm there: the grid, the cluster's "
                                      "nodes, cores and network")
                          ->type_name("FILE");
  command
      .add_option("--time-limit", options->time_limit,
                  "of the job, as Slurm takes it; else by the planned seconds of all steps")
      ->type_name("TIME")
      ->needs(path);
  command
      .add_option("--launcher", options->launcher,
                  "srun (by PMIx) or mpirun [the cluster's, else srun]")
      ->type_name("NAME")
      ->check(CLI::IsMember(plan::job_launchers()))
      ->needs(path);
  return options;
}

std::vector<std::string> options_of(const plan::GridCandidate& candidate) {
  std::vector<std::string> options;
  for (const TomlEntry& entry : parse_toml(train::keys_of(candidate), "grid")) {
    options.push_back("--" + entry.key);
    options.push_back(std::visit(
        [](const auto& value) -> std::string {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::vector<double>>)
            throw InternalError("no key of a grid is a list");
          else
            return fmt::format("{}", value);
        },
        entry.value));
  }
  return options;
}

std::int64_t host_bytes_of(const train::Setup& setup) {
  const auto host = setup.below.tiers.find(Tier::Host);
  if (host == setup.below.tiers.end() || host->second.budget_bytes >= most_key_bytes) return 0;
  return host->second.budget_bytes;
}

std::string write_job(const JobOptions& options, const PlannedJob& planned) {
  if (options.path.empty()) return "";
  plan::JobScript job;
  if (!options.cluster.empty()) job.facts = plan::load_job_facts(options.cluster);
  if (!options.launcher.empty()) job.facts.launcher = options.launcher;
  const RunConfig& config = planned.config;
  job.name = fs::path(config.run.directory).lexically_normal().filename().string();
  job.run_file = fs::absolute(options.run_file).lexically_normal().string();
  job.options = train_options(options, planned);
  job.garonne = own_path();
  job.folder = fs::current_path().string();
  job.ranks = config.grid.data * config.grid.pipeline * config.grid.tensor;
  job.ranks_on_node = planned.ranks_on_node;
  const std::int64_t on_node = std::min(job.ranks, job.ranks_on_node);
  job.threads = planned.threads;
  if (config.run.threads == 0 && job.facts.cores > 0)
    job.threads = static_cast<int>(std::max<std::int64_t>(1, job.facts.cores / on_node));
  job.on_gpus = planned.on_gpus;
  job.memory_bytes = node_bytes(planned, on_node);
  job.step_seconds = planned.step_seconds;
  job.steps = config.train.steps;
  // Where one is being written when the job is warned, the last one follows it.
  const bool beside = config.checkpoint.every > 0 && config.checkpoint.saving != "synchronous";
  job.checkpoint_bytes =
      (beside ? 2 : 1) * planned.parameter_elements * saved_bytes_per_element / job.ranks;
  job.minutes = given_minutes(options, job.facts);
  const std::string script = plan::to_sbatch(job);
  write_file_durably(options.path, script);
  const std::int64_t starts = plan::job_starts(job);
  std::string text = fmt::format(
      "job: sbatch {} ({}{}, at most {}{})\n", plan::shell_word(options.path),
      counted(job.ranks, "rank"),
      on_node < job.ranks ? fmt::format(", {} on each node", on_node) : " on one node",
      plan::format_time_limit(plan::job_minutes(job)),
      starts > 1 ? fmt::format(" a start; all steps take about {} starts", starts) : "");
  if (job.on_gpus && !exec::built_with_cuda()) {
    text += fmt::format(
        "note: the job is for GPUs, and the program in it is a build without CUDA: {};\n"
        "      set GARONNE to the path of one with CUDA when it is submitted\n",
        job.garonne);
  }
  return text;
}

}  // namespace garonne::apps
