#include "plan/job/job_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>
#include <string_view>

#include "base/error.hpp"
#include "base/printable.hpp"

namespace garonne::plan {

// The files of slurm/ by their names, as the build embeds them.
std::string_view job_text(std::string_view name);

namespace {

constexpr std::int64_t minutes_of_unknown_steps = 4 * 60;
constexpr std::int64_t most_minutes_elsewhere = 24 * 60;
constexpr double written_bytes_per_second = 100e6;  // of one rank, on a busy file system
constexpr std::int64_t most_starts = 50;

// What squeue and names of log files take.
std::string job_name(const std::string& name) {
  std::string result;
  for (const char character : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(character)) != 0 ||
                       std::string_view("._-").find(character) != std::string_view::npos;
    result += plain ? character : '_';
  }
  return result.empty() ? "garonne" : result;
}

// Of all steps as planned, and a quarter more.
double needed_minutes(const JobScript& job) {
  return 1.25 * job.step_seconds * static_cast<double>(job.steps) / 60;
}

std::string time_basis(const JobScript& job) {
  const std::int64_t starts = job_starts(job);
  const std::string more =
      starts > 1 ? fmt::format("; all steps take about {} starts of so long", starts) : "";
  if (job.minutes > 0) return "As it was asked for" + more;
  if (job.step_seconds <= 0) return "A guess: how long a step takes is not known";
  return fmt::format("{} steps of {:.3g} s as planned, a quarter more, and ten minutes{}{}",
                     job.steps, job.step_seconds,
                     job_minutes(job) == job.facts.most_minutes ? "; the site's limit" : "", more);
}

std::int64_t nodes_of(const JobScript& job) {
  return (job.ranks + job.ranks_on_node - 1) / job.ranks_on_node;
}

std::string directives(const JobScript& job) {
  std::string text;
  const auto line = [&](const std::string& option) { text += fmt::format("#SBATCH {}\n", option); };
  const std::int64_t on_node = std::min(job.ranks, job.ranks_on_node);
  line("--job-name=" + job_name(job.name));
  line(fmt::format("--nodes={}", nodes_of(job)));
  line(fmt::format("--ntasks={}", job.ranks));
  line(fmt::format("--ntasks-per-node={}", on_node));
  line(fmt::format("--cpus-per-task={}", job.threads));
  if (job.on_gpus) line(fmt::format("--gpus-per-node={}", on_node));
  if (job.memory_bytes > 0) {
    constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
    line(fmt::format("--mem={}M", (job.memory_bytes + mebibyte - 1) / mebibyte));
  }
  text += fmt::format("# {}.\n", time_basis(job));
  line("--time=" + format_time_limit(job_minutes(job)));
  text +=
      "# To the script, which hands it on: time for two steps and two checkpoints, and three "
      "minutes "
      "for the validation that\n# may be under way. Where that takes longer, give more.\n";
  line(fmt::format("--signal=B:USR1@{}", warning_seconds(job)));
  if (job.facts.requeues) {
    line("--requeue");
    line("--output=%x-%j.out");
    line("--open-mode=append");
  } else {
    const std::int64_t jobs = job.step_seconds <= 0 ? 10 : 1 + job_starts(job);
    text += "# One job after the other; those that are not needed are cancelled.\n";
    line(fmt::format("--array=1-{}%1", jobs));
    line("--no-requeue");
    line("--output=%x-%A_%a.out");
  }
  std::istringstream words(job.facts.directives);
  for (std::string word; words >> word;) line(word);
  return text;
}

}  // namespace

std::string shell_word(const std::string& text) {
  for (const char character : text) {
    if (static_cast<unsigned char>(character) < ' ' || character == '\x7f')
      throw ConfigError("--sbatch", printable(text), "cannot stand in a script: rename it");
  }
  const auto plain = [](char character) {
    return std::isalnum(static_cast<unsigned char>(character)) != 0 ||
           std::string_view("@%+=:,./_-").find(character) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string result = "'";
  for (const char character : text)
    result += character == '\'' ? "'\\''" : std::string(1, character);
  return result + "'";
}

std::int64_t job_minutes(const JobScript& job) {
  if (job.minutes > 0) return job.minutes;
  const std::int64_t most =
      job.facts.most_minutes > 0 ? job.facts.most_minutes : most_minutes_elsewhere;
  if (job.step_seconds <= 0) return std::min(most, minutes_of_unknown_steps);
  const double needed = needed_minutes(job) + 10;
  if (needed >= static_cast<double>(most)) return most;
  return std::min(most, 10 * static_cast<std::int64_t>(std::ceil(needed / 10)));
}

std::int64_t warning_seconds(const JobScript& job) {
  const double work =
      2 * (job.step_seconds + static_cast<double>(job.checkpoint_bytes) / written_bytes_per_second);
  constexpr double most_of_slurm = 65535;
  const double half = 30.0 * static_cast<double>(job_minutes(job));
  return static_cast<std::int64_t>(std::min({std::ceil(180 + work), half, most_of_slurm}));
}

std::int64_t job_starts(const JobScript& job) {
  if (job.step_seconds <= 0) return 0;
  const double minutes = static_cast<double>(job_minutes(job));
  const double warning = static_cast<double>(warning_seconds(job)) / 60;
  const double starts = std::ceil(needed_minutes(job) / (minutes - warning));
  constexpr double most = 1e9;
  return static_cast<std::int64_t>(std::clamp(starts, 1.0, most));
}

std::string to_sbatch(const JobScript& job) {
  expect(job.ranks >= 1 && job.ranks_on_node >= 1 && job.threads >= 1,
         "a job has ranks and threads");
  std::string options;
  for (const std::string& option : job.options) options += shell_word(option) + " ";
  return fmt::format(
      "#!/usr/bin/env bash\n"
      "# Written by garonne plan --sbatch. Submit it with sbatch; what stands after its name goes "
      "to garonne train.\n"
      "\n"
      "{}"
      "# EDIT: project to be charged and partition, where the site wants them.\n"
      "##SBATCH --account=PROJECT\n"
      "##SBATCH --partition=PARTITION\n"
      "\n"
      "set -euo pipefail\n"
      "\n"
      "# EDIT: how the site provides MPI and HDF5, for example\n"
      "# module purge; module load gcc openmpi hdf5\n"
      "\n"
      "# Where paths of the run begin, whatever folder it is submitted from: RUN_FROM=DIR says "
      "otherwise.\n"
      "planned_in={}\n"
      "cd \"${{RUN_FROM:-$planned_in}}\"\n"
      "run_file={}\n"
      "options=({}\"$@\")\n"
      "# Or several words, as GARONNE=\"apptainer run garonne.sif\".\n"
      "planned_by={}\n"
      "garonne=${{GARONNE:-$planned_by}}\n"
      "launcher=${{LAUNCHER:-{}}}\n"
      "network={} interface={}\n"
      "goes_on={} most_starts={}\n"
      "\n"
      "{}",
      directives(job), shell_word(job.folder), shell_word(job.run_file), options,
      shell_word(job.garonne), job.facts.launcher.empty() ? "srun" : job.facts.launcher,
      shell_word(job.facts.network), shell_word(job.facts.interface),
      job.facts.requeues ? "requeue" : "chain", std::max(most_starts, 2 * job_starts(job)),
      job_text("job.sh"));
}

}  // namespace garonne::plan
