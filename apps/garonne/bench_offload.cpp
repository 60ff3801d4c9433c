#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "train/bench/budget_benchmark.hpp"

namespace garonne::apps {
namespace {

void print_rows(const std::vector<train::BudgetRow>& rows) {
  fmt::print("{:>6} {:>11} {:<10} {:<20} {:>11} {:>11} {:>11} {:>10} {:>10} {:>8} {:>10} {:>10}\n",
             "share", "budget", "may", "plan", "peak", "on disk", "copied", "planned", "step",
             "added", "copying", "waited");
  for (const auto& row : rows) {
    const std::string budget = row.wanted == "keep-all" ? "" : format_bytes(row.budget_bytes);
    if (!row.fits) {
      fmt::print("{:>5.0f}% {:>11} {:<10} does not fit\n", 100 * row.share, budget, row.wanted);
      continue;
    }
    fmt::print(
        "{:>5.0f}% {:>11} {:<10} {:<20} {:>11} {:>11} {:>11} {:>7.1f} ms {:>7.1f} ms {:>7.1f}% "
        "{:>7.1f} ms {:>7.1f} ms\n",
        100 * row.share, budget, row.wanted, row.plan, format_bytes(row.peak_bytes),
        format_bytes(row.disk_bytes), format_bytes(row.copied_out_bytes), 1e3 * row.planned_seconds,
        1e3 * row.step_seconds, 100 * row.added_share, 1e3 * row.copy_seconds,
        1e3 * row.waited_seconds);
  }
}

nlohmann::ordered_json to_json(const std::vector<train::BudgetRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    list.push_back({{"share", row.share},
                    {"budget_bytes", row.budget_bytes},
                    {"may", row.wanted},
                    {"fits", row.fits},
                    {"plan", row.plan},
                    {"planned_peak_bytes", row.planned_peak_bytes},
                    {"peak_bytes", row.peak_bytes},
                    {"disk_bytes", row.disk_bytes},
                    {"copied_out_bytes", row.copied_out_bytes},
                    {"planned_seconds", row.planned_seconds},
                    {"step_seconds", row.step_seconds},
                    {"added_share", row.added_share},
                    {"planned_added", row.planned_added},
                    {"copy_seconds", row.copy_seconds},
                    {"waited_seconds", row.waited_seconds},
                    {"planning_seconds", row.planning_seconds}});
  }
  return list;
}

}  // namespace

void add_bench_offload(CLI::App& bench, Chosen& chosen) {
  CLI::App* command = bench.add_subcommand(
      "offload", "what memory.disk gains: plans that run again, that move, and that do both");
  const auto config = add_config_options(*command);
  const auto options = std::make_shared<train::BudgetOptions>();
  options->offloads = true;
  const auto percent = std::make_shared<std::vector<double>>(std::vector<double>{70, 50, 35});
  const auto json = std::make_shared<bool>(false);
  command
      ->add_option("--shares", *percent,
                   "budgets, in percent of the bytes that keep-all needs beyond the static ones")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command->add_option("--steps", options->steps, "timed turns, after two that are not")
      ->check(count())
      ->capture_default_str();
  command->add_flag("--json", *json, "print JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      RunConfig loaded;
      session.agree([&] { loaded = config->load(); });
      for (const double share : *percent) options->shares.push_back(share / 100);
      const auto rows = train::run_budget_benchmark(loaded, *options, session);
      if (session.rank() != 0) return ExitCode::Done;
      if (*json) {
        fmt::print("{}\n", to_json(rows).dump(1));
      } else {
        print_rows(rows);
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
