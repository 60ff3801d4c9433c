// `garonne forecast`: fields of the future as CF netCDF-4.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/json_output.hpp"
#include "base/key_limits.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "memory_options.hpp"
#include "train/evaluation/field_forecast.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::apps {
namespace {

struct ForecastOptions {
  std::string run;
  std::int64_t step = -1;
  std::string output;
  train::FieldForecastOptions forecast;
  std::shared_ptr<MemoryOptions> memory;
  bool json = false;
};

void print_summary(const ForecastOptions& options, const train::FieldForecast& forecast) {
  const data::ForecastSetting& setting = forecast.setting();
  const auto starts = static_cast<std::int64_t>(setting.starts.size());
  fmt::print("step {}: {} of {}", setting.step, counted(starts, "forecast"),
             counted(setting.leads, "step"));
  if (setting.members > 1) {
    fmt::print(", {} members with noise of {:g} deviations", setting.members, setting.noise);
  }
  if (setting.fields.has_times) {
    const auto time = [&](double seconds) {
      return data::format_time(seconds, setting.fields.calendar);
    };
    fmt::print(", from {}", time(setting.starts.front()));
    if (!setting.valid_times.empty()) fmt::print(" to {}", time(setting.valid_times.back()));
  }
  if (forecast.found() > 0) {
    fmt::print("\nwent on behind {} of {} steps", forecast.found(),
               forecast.found() + forecast.made());
  }
  fmt::print("\npeak {} of {} planned · {}\n", format_bytes(forecast.peak_bytes()),
             format_bytes(forecast.planned_peak_bytes()), options.output);
}

ExitCode make_forecast(const ForecastOptions& options, dist::Session& session) {
  train::TrainedModel trained =
      train::open_trained_model(options.run, options.step, session, std::nullopt,
                                options.forecast.data.empty(), options.memory->given());
  std::unique_ptr<train::Workload> workload;
  session.agree([&] {
    train::expect_model_of(train::fields_kind(), trained.config.model.kind, "garonne forecast",
                           options.run);
    workload =
        std::make_unique<train::FieldWorkload>(trained.config, "data.validation", trained.data);
  });
  dist::agree_on(session, [&] { return workload->contents(); });
  session.agree([&] {
    if (session.rank() != 0) return;
    const std::string warning =
        train::other_statistics_warning(*workload, trained.data, trained.config.data.statistics);
    if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);
  });
  const auto& fields = dynamic_cast<const train::FieldWorkload&>(*workload);
  std::optional<train::FieldForecast> forecast;
  std::optional<data::ForecastFile> file;
  session.agree([&] {
    forecast.emplace(trained, fields, options.run, options.forecast);
    if (session.rank() == 0) {
      for (const std::string& note : forecast->notes()) fmt::print(stderr, "warning: {}\n", note);
    }
    if (session.rank() == 0) file.emplace(options.output, forecast->setting());
  });
  forecast->run(session, file ? &*file : nullptr, /*show_progress=*/true);
  session.agree([&] {
    if (file) file->publish();
  });
  if (session.rank() != 0) return ExitCode::Done;
  if (options.json) {
    const data::ForecastSetting& setting = forecast->setting();
    const nlohmann::ordered_json result = {{"run", options.run},
                                           {"step", setting.step},
                                           {"output", options.output},
                                           {"starts", setting.starts.size()},
                                           {"members", setting.members},
                                           {"steps", setting.leads},
                                           {"steps_found", forecast->found()},
                                           {"steps_made", forecast->made()},
                                           {"peak_bytes", forecast->peak_bytes()},
                                           {"planned_peak_bytes", forecast->planned_peak_bytes()}};
    fmt::print("{}\n", json_text(result, 2));
  } else {
    print_summary(options, *forecast);
  }
  return ExitCode::Done;
}

}  // namespace

void add_forecast(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "forecast",
      "fields that the model of a run forecasts, as CF netCDF-4; ranks share starts and members, "
      "and what was ended goes on when it is started again");
  const auto options = std::make_shared<ForecastOptions>();
  train::FieldForecastOptions& forecast = options->forecast;
  command->add_option("run", options->run, "run directory")->required();
  command->add_option("--output", options->output, "the netCDF file to write")
      ->type_name("FILE")
      ->required();
  command->add_option("--steps", forecast.steps, "steps of the model into the future")
      ->required()
      ->check(count());
  command
      ->add_option("--from", forecast.from,
                   "states to start from: dates YYYY-MM-DD[THH:MM], or numbers of frames from 0, "
                   "comma-separated [the last frame]")
      ->delimiter(',')
      ->option_text("DATE,…");
  command
      ->add_option("--data", forecast.data,
                   "files of the states to start from [the validation data of the run, or those "
                   "that it trained on]")
      ->option_text("PATH");
  command->add_option("--members", forecast.members, "of an ensemble; the first one has no noise")
      ->check(count())
      ->capture_default_str();
  command
      ->add_option("--noise", forecast.noise,
                   "of the initial states of the other members, in deviations of each channel")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--seed", forecast.seed, "of the noise")->capture_default_str();
  command->add_option("--compression", forecast.compression, "level of deflate")
      ->check(CLI::Range(0, 9))
      ->capture_default_str();
  command
      ->add_option("--step", options->step,
                   "a saved step; 0 = what the run began with [the newest checkpoint]")
      ->check(count(0, most_steps));
  options->memory = add_memory_options(*command);
  command->add_flag("--json", options->json, "print JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) { return make_forecast(*options, session); };
  });
}

}  // namespace garonne::apps
