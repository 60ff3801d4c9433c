#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/json_output.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "train/bench/benchmark.hpp"

namespace garonne::apps {
namespace {

// A mistyped command of `bench` reads as the path of a run file.
void expect_run_file(const std::string& path, const CLI::App& bench) {
  if (std::filesystem::exists(path)) return;
  std::vector<std::string> names;
  for (const CLI::App* command : bench.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  const std::string meant = nearest_word(path, names);
  if (meant.empty()) return;
  throw ConfigError(
      "config", path,
      fmt::format("is neither a run file nor a command of `bench`; did you mean {}?", meant));
}

}  // namespace

void add_bench(CLI::App& app, Chosen& chosen) {
  CLI::App* command =
      app.add_subcommand("bench", "time steps of a run file on made-up data; nothing is written");
  const auto config = add_config_options(*command);
  // A subcommand brings what it needs itself.
  CLI::Option* path = command->get_option("config")->required(false);
  add_bench_budgets(*command, chosen);
  add_bench_offload(*command, chosen);
  add_bench_device(*command, chosen);
  add_bench_links(*command, chosen);
  add_bench_solvers(*command, chosen);
  add_bench_transforms(*command, chosen);
  const auto steps = std::make_shared<std::int64_t>(10);
  const auto json = std::make_shared<bool>(false);
  command->add_option("--steps", *steps, "steps to time, after two that are not")
      ->check(count())
      ->capture_default_str();
  command->add_flag("--json", *json, "print JSON");
  command->callback([=, &chosen] {
    if (!command->get_subcommands().empty()) return;
    if (path->empty()) throw CLI::RequiredError("config");
    expect_run_file(config->path, *command);
    chosen.action = [=](dist::Session& session) {
      RunConfig loaded;
      session.agree([&] { loaded = config->load(); });
      const train::BenchmarkResult result = train::run_benchmark(loaded, *steps, session);
      if (session.rank() != 0) return ExitCode::Done;
      if (*json) {
        nlohmann::ordered_json line = {{"samples_per_second", result.samples_per_second},
                                       {"step_seconds", result.step_seconds},
                                       {"planned_seconds", result.planned_seconds},
                                       {"peak_bytes", result.peak_bytes},
                                       {"planned_peak_bytes", result.planned_peak_bytes},
                                       {"resident_bytes", result.resident_bytes},
                                       {"operations_per_second", result.operations_per_second},
                                       {"product_roof", result.product_roof}};
        if (result.product_roof > 0)
          line["roof_share"] = result.operations_per_second / result.product_roof;
        if (result.tokens_per_second > 0) line["tokens_per_second"] = result.tokens_per_second;
        fmt::print("{}\n", json_text(line));
        return ExitCode::Done;
      }
      fmt::print("step        {:.1f} ms (median of {}), planned {:.1f} ms\n",
                 1e3 * result.step_seconds, *steps, 1e3 * result.planned_seconds);
      if (result.tokens_per_second > 0) {
        fmt::print("tokens/s    {:.0f}\n", result.tokens_per_second);
      } else {
        fmt::print("samples/s   {:.1f}\n", result.samples_per_second);
      }
      fmt::print("peak        {} B measured, {} B planned\n", result.peak_bytes,
                 result.planned_peak_bytes);
      fmt::print("resident    {}\n", format_bytes(result.resident_bytes));
      if (result.product_roof > 0) {
        fmt::print(
            "roof        {:.1f} of {:.1f} GFLOP/s: {:.0f} % of the fastest matrix product measured "
            "here\n",
            result.operations_per_second / 1e9, result.product_roof / 1e9,
            100.0 * result.operations_per_second / result.product_roof);
      }
      for (const auto& [kind, seconds] : result.seconds_by_kind) {
        fmt::print("  {:<28}{:>9.2f} ms  {:5.1f} %\n", kind, 1e3 * seconds,
                   100.0 * seconds / result.step_seconds);
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
