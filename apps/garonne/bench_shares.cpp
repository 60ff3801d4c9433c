#include "bench_shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/json_output.hpp"
#include "counts.hpp"

namespace garonne::apps {

namespace {

std::vector<std::int64_t> budgets_of(const std::vector<std::string>& texts) {
  std::vector<std::int64_t> budgets;
  for (const std::string& text : texts) {
    const std::optional<std::int64_t> bytes = parse_bytes(text);
    if (!bytes || *bytes <= 0)
      throw ConfigError("--budgets", text, "is no number of bytes, as 600MiB");
    budgets.push_back(*bytes);
  }
  return budgets;
}

}  // namespace

std::string heading_of(const std::vector<train::BudgetRow>& rows) {
  const train::BudgetRow& keep_all = rows.front();
  std::string added = "the median over turns of what a plan took beyond keep-all in the same turn,";
  if (!keep_all.runs) {
    added =
        "what a plan took beyond the planned time of keep-all, which is more than this machine "
        "has;";
  } else if (keep_all.one_at_a_time) {
    added = "what the median is beyond keep-all's: plans were held one at a time;";
  }
  const char* const more = keep_all.runs && !keep_all.one_at_a_time
                               ? "which is not the ratio of the medians; planned"
                               : "planned";
  return fmt::format("step: the median of all steps. added: {}\n{}: as the plans say\n", added,
                     more);
}

std::size_t width_of_plans(const std::vector<train::BudgetRow>& rows) {
  std::size_t width = 16;
  for (const train::BudgetRow& row : rows) width = std::max(width, row.plan.size());
  return width;
}

void set_budget_benchmark(CLI::App& command, std::shared_ptr<train::BudgetOptions> options,
                          BudgetTable table, Chosen& chosen) {
  const auto config = add_config_options(command);
  const auto percent = std::make_shared<std::vector<double>>(std::vector<double>{70, 50, 35});
  const auto json = std::make_shared<bool>(false);
  const auto bytes = std::make_shared<std::vector<std::string>>();
  CLI::Option* const shares =
      command
          .add_option("--shares", *percent,
                      "budgets, in percent of the bytes that keep-all needs beyond the static ones")
          ->delimiter(',')
          ->check(CLI::Range(0.0, 1000.0))
          ->capture_default_str();
  command
      .add_option(
          "--budgets", *bytes,
          "further budgets, or in place of the shares where none are given: bytes, as 600MiB")
      ->delimiter(',')
      ->type_name("BYTES");
  command.add_option("--steps", options->steps, "timed turns, after two that are not")
      ->check(count())
      ->capture_default_str();
  command.add_flag("--one-at-a-time", options->one_at_a_time,
                   "hold one plan at a time, as where there is no room for all side by side: all "
                   "steps of one, then of the next, in place of turns");
  command.add_flag("--json", *json, "print JSON");
  command.callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      RunConfig loaded;
      session.agree([&] { loaded = config->load(); });
      if (bytes->empty() || shares->count() > 0)
        for (const double share : *percent) options->shares.push_back(share / 100);
      session.agree([&] { options->budgets = budgets_of(*bytes); });
      const auto rows = train::run_budget_benchmark(loaded, *options, session);
      if (session.rank() != 0) return ExitCode::Done;
      if (*json) {
        fmt::print("{}\n", json_text(table.to_json(rows), 1));
      } else {
        table.print(rows);
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
