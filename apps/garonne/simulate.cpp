#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/file.hpp"
#include "base/json_output.hpp"
#include "base/output_file.hpp"
#include "command.hpp"
#include "plan/pipeline/comparison.hpp"
#include "plan/pipeline/schedule_json.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/simulation.hpp"
#include "plan/pipeline/timeline_svg.hpp"
#include "plan/pipeline/timeline_text.hpp"
#include "plan_target.hpp"
#include "terminal.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/simulated_run.hpp"

namespace garonne::apps {
namespace {

struct SimulateOptions {
  std::shared_ptr<ConfigOptions> run;  // its path is empty where seconds are given
  TargetOptions target;                // of the run
  std::string schedule;
  bool all = false;
  plan::PipelineRequest request;
  plan::PhaseSeconds seconds = {1, 1, 1};
  double hop_seconds = 0;
  std::optional<double> overlap_gain;
  bool json = false;
  std::string svg;
  std::string save;
  std::optional<int> width;
};

// What a run file and a cluster say.
constexpr const char* options_of_seconds[] = {
    "--schedule",       "--stages",          "--micro-batches", "--forward",
    "--backward-input", "--backward-weight", "--communication", "--chunks",
    "--group-size",     "--overlap-gain",    "--file"};

void expect_seconds(const char* key, double value) {
  constexpr double most = 1e9;
  if (!std::isfinite(value) || value < 0 || value > most)
    throw ConfigError(key, fmt::format("{}", value), "is no number of seconds from 0 to 1e9");
}

void expect_outputs(const SimulateOptions& options) {
  if (!options.save.empty()) {
    expect_output("--save", options.save,
                  json_output("a schedule of Garonne", {"garonne.pipeline-schedule"}),
                  {options.request.file});
  }
  if (!options.svg.empty()) {
    expect_output("--svg", options.svg,
                  text_output("a timeline of Garonne", ".lane { fill: #eef1f5 }"));
  }
}

bool is_of_run(const SimulateOptions& options) {
  return !options.run->path.empty();
}

// What a run file says, or a cluster. `given`: the first of these options that was given.
void check_run(const SimulateOptions& options, const std::string& given) {
  if (!is_of_run(options)) {
    if (!options.target.cluster.empty())
      throw ConfigError("--cluster", options.target.cluster, "is for a run file; give one");
    if (options.target.fields)
      throw ConfigError("--fields", *options.target.fields, "is for a run file; give one");
    if (!options.run->given->empty()) {
      const auto& [key, value] = *options.run->given->begin();
      throw ConfigError(key, value, "is for a run file; give one");
    }
    return;
  }
  if (!given.empty()) {
    throw ConfigError(given, "",
                      "is what the run file and the cluster say; leave it out, and give the run's "
                      "keys (--grid.schedule, --grid.pipeline, --train.global_batch)");
  }
}

void check(const SimulateOptions& options) {
  if (is_of_run(options)) return;
  expect_seconds("--forward", options.seconds.forward);
  expect_seconds("--backward-input", options.seconds.backward_input);
  expect_seconds("--backward-weight", options.seconds.backward_weight);
  expect_seconds("--communication", options.hop_seconds);
  if (options.seconds.sum() == 0)
    throw ConfigError("--forward", "0", "a micro-batch takes no time at all");
  const double gain = options.overlap_gain.value_or(0);
  if (!(gain >= 0 && gain < 1))
    throw ConfigError("--overlap-gain", fmt::format("{}", gain), "is no share from 0 to below 1");
  if (options.all == !options.schedule.empty())
    throw ConfigError("--schedule", options.schedule, "give either this or --all");
}

void check_outputs(const SimulateOptions& options) {
  if (options.width && (options.json || options.all))
    throw ConfigError("--width", fmt::format("{}", *options.width), "only a timeline has a width");
  if (!options.all) return;
  for (const auto& [key, value] :
       {std::pair{"--file", &options.request.file}, std::pair{"--svg", &options.svg},
        std::pair{"--save", &options.save}}) {
    if (!value->empty()) throw ConfigError(key, *value, "is for one schedule, not for --all");
  }
}

template <class Number>
std::string listed(const std::vector<Number>& numbers) {
  std::string text;
  for (const Number number : numbers) {
    text += fmt::format("{}{:.4g}", text.empty() ? "" : " ", static_cast<double>(number));
  }
  return text;
}

void print_timeline(const plan::PipelineSchedule& schedule, const plan::PipelineOutcome& outcome,
                    const SimulateOptions& options) {
  const bool colour = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  fmt::print("{}: {}, {}, {} a device\n", schedule.name, counted(schedule.devices, "stage"),
             counted(schedule.micro_batches, "micro-batch"), counted(schedule.chunks, "chunk"));
  fmt::print("{}", plan::timeline_text(schedule, outcome,
                                       options.width.value_or(terminal_columns(120)), colour));
  fmt::print("makespan          {:.6g} s\n", outcome.makespan);
  fmt::print("bubble            {:.6g} s ({:.1f} % of the makespan)\n", outcome.bubble,
             100 * outcome.bubble / outcome.makespan);
  fmt::print("spans             {} s (each device from its first start to its last end)\n",
             listed(outcome.spans));
  fmt::print("peak activations  {} (by device, in micro-batches)\n",
             listed(outcome.peak_activations));
  if (!outcome.peak_inputs.empty())
    fmt::print("peak inputs       {} (stashed for recomputation)\n", listed(outcome.peak_inputs));
}

// What is simulated: costs of schedules, and what one is made for.
struct Subject {
  std::string schedule;
  plan::PipelineRequest request;
  plan::CostsOfSchedule costs_of;
  std::optional<plan::PhaseSeconds> even;  // of a device, where all are equal
};

Subject given_subject(const SimulateOptions& options) {
  const auto costs_of = [&options](const plan::PipelineSchedule& schedule) {
    plan::PipelineCosts costs = plan::even_costs(schedule, options.seconds);
    costs.hop_seconds = options.hop_seconds;
    costs.overlap_gain = options.overlap_gain;
    return costs;
  };
  return {options.schedule, options.request, costs_of, options.seconds};
}

// A run on the devices of a cluster.
struct Run {
  train::GridSearchRequest wish;
  std::optional<train::SimulatedRun> simulated;
};

std::unique_ptr<Run> run_of(const SimulateOptions& options) {
  auto run = std::make_unique<Run>();
  train::GridSearchRequest& wish = run->wish;
  wish.config = options.run->load();
  if (options.target.cluster.empty())
    throw ConfigError("--cluster", "", "a run is simulated on the devices of one; give its file");
  const auto& grid = wish.config.grid;
  if (grid.pipeline < 2) {
    throw ConfigError("grid.pipeline", fmt::format("{}", grid.pipeline),
                      "a pipeline has two stages or more");
  }
  if (grid.group_size > 0) {
    throw ConfigError("grid.group_size", fmt::format("{}", grid.group_size),
                      "is not simulated of a run; leave it out, or give schedule and seconds");
  }
  Target target = target_of(wish.config, options.target);
  wish.facts = target.facts;
  wish.threads = target.threads;
  wish.ranks = static_cast<int>(target.ranks);
  wish.cluster = *target.cluster;
  wish.costs = target.costs;
  wish.budget_bytes = train::budget_on_cluster(wish.config, wish.cluster);
  run->simulated.emplace(wish);
  return run;
}

Subject subject_of(Run& run) {
  const auto& grid = run.wish.config.grid;
  Subject subject;
  subject.schedule = grid.schedule;
  subject.request.stages = static_cast<int>(grid.pipeline);
  subject.request.micro_batches = static_cast<int>(micro_batches_per_rank(run.wish.config));
  if (grid.chunks > 0) subject.request.chunks = static_cast<int>(grid.chunks);
  subject.request.file = grid.schedule_file;
  subject.costs_of = [&run](const plan::PipelineSchedule& schedule) {
    return run.simulated->costs_of(schedule);
  };
  return subject;
}

ExitCode simulate_all(const SimulateOptions& options, const Subject& subject) {
  const auto rows = plan::compare_pipeline_schedules(subject.request, subject.costs_of);
  fmt::print("{}", options.json ? json_text(plan::comparison_json(rows), 2) + "\n"
                                : plan::format_comparison(rows));
  return ExitCode::Done;
}

ExitCode simulate(const SimulateOptions& options) {
  check(options);
  check_outputs(options);
  expect_outputs(options);
  const std::unique_ptr<Run> run = is_of_run(options) ? run_of(options) : nullptr;
  const Subject subject = run ? subject_of(*run) : given_subject(options);
  if (options.all) return simulate_all(options, subject);
  const plan::PipelineSchedule schedule =
      plan::make_pipeline_schedule(subject.schedule, subject.request);
  const plan::PipelineCosts costs = subject.costs_of(schedule);
  if (costs.overlap_gain && !schedule.has_overlaps()) {
    throw ConfigError("--overlap-gain", fmt::format("{}", *costs.overlap_gain),
                      fmt::format("{} has nothing that overlaps here; dualpipev has, from two "
                                  "micro-batches a stage on",
                                  schedule.name));
  }
  const plan::PipelineOutcome outcome = plan::simulate_pipeline(schedule, costs);
  if (!options.save.empty())
    write_file_durably(options.save, json_text(plan::to_json(schedule)) + "\n");
  if (!options.svg.empty()) write_file_durably(options.svg, plan::timeline_svg(schedule, outcome));
  const plan::GridEstimate step = run ? run->simulated->step(schedule) : plan::GridEstimate();
  if (options.json) {
    nlohmann::ordered_json json = plan::simulation_json(schedule, subject.even, costs, outcome);
    if (run) {
      json["step_seconds"] = step.seconds;
      json["peak_bytes"] = step.bytes;
      json["budget_bytes"] = run->wish.budget_bytes;
    }
    fmt::print("{}\n", json_text(json));
    return ExitCode::Done;
  }
  print_timeline(schedule, outcome, options);
  if (run) {
    fmt::print("a step            {:.6g} s (with sums over ranks and updates; {})\n", step.seconds,
               train::source_of(run->wish.cluster));
    fmt::print("peak              {} of a rank, {} {}\n", format_bytes(step.bytes),
               step.fits ? "within" : "BEYOND", format_bytes(run->wish.budget_bytes));
  }
  return ExitCode::Done;
}

}  // namespace

void add_simulate(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "simulate", "time, bubble and memory of a pipeline schedule; no MPI, no device");
  const auto options = std::make_shared<SimulateOptions>();
  options->run = add_config_options(*command, RunFile::Optional);
  command
      ->add_option("--cluster", options->target.cluster,
                   "simulate the pipeline of the run file on the devices and links of this "
                   "cluster file (config/clusters/*.toml), as searches of `plan` estimate it")
      ->type_name("FILE");
  command
      ->add_option("--fields", options->target.fields,
                   "of the run file's data, which need not be there then, as for `plan`")
      ->type_name("SIZES");
  std::string names;
  for (const auto& kind : plan::pipeline_schedule_kinds()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  }
  command->add_option("--schedule", options->schedule, names)->type_name("NAME");
  command->add_flag("--all", options->all, "a table of all schedules instead of one");
  command->add_option("--stages", options->request.stages, "devices of the pipeline");
  command->add_option("--micro-batches", options->request.micro_batches, "of one step");
  command->add_option("--forward", options->seconds.forward,
                      "seconds of a micro-batch's forward on one device [1]");
  command->add_option("--backward-input", options->seconds.backward_input,
                      "seconds of the gradient of its input [1]");
  command->add_option("--backward-weight", options->seconds.backward_weight,
                      "seconds of the gradient of the weights [1]");
  command->add_option("--communication", options->hop_seconds,
                      "seconds from one device to the next; occupies neither [0]");
  command->add_option("--chunks", options->request.chunks,
                      "parts of the model on a device [2 for interleaved]");
  command->add_option("--group-size", options->request.group_size,
                      "micro-batches in a row through one chunk of interleaved [stages]");
  command->add_option("--overlap-gain", options->overlap_gain,
                      "share of its time that a forward and a backward save which dualpipev pairs; "
                      "without it they run one after the other");
  command
      ->add_option("--file", options->request.file,
                   "the schedule of --schedule file (format garonne.pipeline-schedule)")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "print JSON (format garonne.simulation)");
  command->add_option("--svg", options->svg, "write the timeline as a picture there")
      ->type_name("FILE");
  command
      ->add_option("--save", options->save,
                   "write the schedule there (format garonne.pipeline-schedule)")
      ->type_name("FILE");
  command
      ->add_option("--width", options->width,
                   "columns of the timeline [those of the terminal, else 120]")
      ->check(CLI::Range(40, 10000));
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "simulate");
      std::string given;
      for (const char* name : options_of_seconds)
        if (given.empty() && command->count(name) > 0) given = name;
      check_run(*options, given);
      return simulate(*options);
    };
  });
}

}  // namespace garonne::apps
