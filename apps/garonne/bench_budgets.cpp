#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "bench_shares.hpp"

namespace garonne::apps {
namespace {

void print_rows(const std::vector<train::BudgetRow>& rows) {
  const std::size_t width = width_of_plans(rows);
  fmt::print("{}", heading_of(rows));
  fmt::print("{:>6} {:>11} {:>10}  {:<{}} {:>11} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8}\n", "share",
             "budget", "wanted", "plan", width, "peak", "of plan", "planned", "step", "added",
             "planned", "planning");
  for (const auto& row : rows) {
    const std::string budget = row.wanted == "keep-all" ? "" : format_bytes(row.budget_bytes);
    if (!row.fits) {
      fmt::print("{:>5.0f}% {:>11} {:>10}  does not fit\n", 100 * row.share, budget, row.wanted);
      continue;
    }
    if (!row.runs) {
      fmt::print(
          "{:>5.0f}% {:>11} {:>10}  {:<{}} {:>11} {:>8} {:>6.1f} ms  more than this machine has\n",
          100 * row.share, budget, row.wanted, row.plan, width,
          format_bytes(row.planned_peak_bytes), "", 1e3 * row.planned_seconds);
      continue;
    }
    fmt::print(
        "{:>5.0f}% {:>11} {:>10}  {:<{}} {:>11} {:>7.2f}% {:>6.1f} ms {:>6.1f} ms {:>7.1f}% "
        "{:>7.1f}% {:>6.2f} s\n",
        100 * row.share, budget, row.wanted, row.plan, width, format_bytes(row.peak_bytes),
        100.0 * static_cast<double>(row.peak_bytes) / static_cast<double>(row.planned_peak_bytes),
        1e3 * row.planned_seconds, 1e3 * row.step_seconds, 100 * row.added_share,
        100 * row.planned_added, row.planning_seconds);
  }
}

nlohmann::ordered_json to_json(const std::vector<train::BudgetRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    list.push_back({{"share", row.share},
                    {"budget_bytes", row.budget_bytes},
                    {"wanted", row.wanted},
                    {"fits", row.fits},
                    {"runs", row.runs},
                    {"plan", row.plan},
                    {"planned_peak_bytes", row.planned_peak_bytes},
                    {"peak_bytes", row.peak_bytes},
                    {"planned_seconds", row.planned_seconds},
                    {"step_seconds", row.step_seconds},
                    {"added_share", row.added_share},
                    {"planned_added", row.planned_added},
                    {"planning_seconds", row.planning_seconds}});
  }
  return list;
}

}  // namespace

void add_bench_budgets(CLI::App& bench, Chosen& chosen) {
  CLI::App* command = bench.add_subcommand(
      "budgets", "what budgets cost: planned against measured, beside fixed policies");
  const auto options = std::make_shared<train::BudgetOptions>();
  set_budget_benchmark(*command, options, {print_rows, to_json}, chosen);
  command->add_flag("!--no-policies", options->policies,
                    "leave out the uniform, selective and full policies");
}

}  // namespace garonne::apps
