#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <optional>

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
#include "terminal.hpp"

namespace garonne::apps {
namespace {

struct SimulateOptions {
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

void check(const SimulateOptions& options) {
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

ExitCode simulate_all(const SimulateOptions& options) {
  const auto rows = plan::compare_pipeline_schedules(options.request, options.seconds,
                                                     options.hop_seconds, options.overlap_gain);
  fmt::print("{}", options.json ? json_text(plan::comparison_json(rows), 2) + "\n"
                                : plan::format_comparison(rows));
  return ExitCode::Done;
}

ExitCode simulate(const SimulateOptions& options) {
  check(options);
  expect_outputs(options);
  if (options.all) return simulate_all(options);
  const plan::PipelineSchedule schedule =
      plan::make_pipeline_schedule(options.schedule, options.request);
  plan::PipelineCosts costs = plan::even_costs(schedule, options.seconds);
  costs.hop_seconds = options.hop_seconds;
  costs.overlap_gain = options.overlap_gain;
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
  if (options.json) {
    fmt::print("{}\n", json_text(plan::simulation_json(schedule, options.seconds, costs, outcome)));
  } else {
    print_timeline(schedule, outcome, options);
  }
  return ExitCode::Done;
}

}  // namespace

void add_simulate(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "simulate", "time, bubble and memory of a pipeline schedule; no MPI, no device");
  const auto options = std::make_shared<SimulateOptions>();
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
      return simulate(*options);
    };
  });
}

}  // namespace garonne::apps
