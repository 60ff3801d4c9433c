#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "bench_shares.hpp"

namespace garonne::apps {
namespace {

// What part of a lane's time Compute did not wait for.
std::string hidden_text(const train::BudgetRow& row) {
  std::string text;
  for (const auto& [lane, seconds] : row.lanes) {
    if (seconds.busy <= 0) continue;
    const double hidden = std::max(0.0, 1 - seconds.waited / seconds.busy);
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", to_string(lane), 100 * hidden);
  }
  return text;
}

void print_offload_rows(const std::vector<train::BudgetRow>& rows) {
  const std::size_t width = width_of_plans(rows);
  fmt::print("{}", heading_of(rows));
  fmt::print(
      "{:>6} {:>11} {:<10} {:<{}} {:>11} {:>11} {:>11} {:>10} {:>10} {:>8} {:>10} {:>10}  {}\n",
      "share", "budget", "may", "plan", width, "peak", "below", "copied", "planned", "step",
      "added", "copying", "waited", "hidden of each lane's time");
  for (const auto& row : rows) {
    const std::string budget = row.wanted == "keep-all" ? "" : format_bytes(row.budget_bytes);
    if (!row.fits) {
      fmt::print("{:>5.0f}% {:>11} {:<10} does not fit\n", 100 * row.share, budget, row.wanted);
      continue;
    }
    if (!row.runs) {
      fmt::print(
          "{:>5.0f}% {:>11} {:<10} {:<{}} {:>11} {:>11} {:>11} {:>7.1f} ms  more than this machine "
          "has\n",
          100 * row.share, budget, row.wanted, row.plan, width,
          format_bytes(row.planned_peak_bytes), format_bytes(row.host_bytes + row.disk_bytes),
          format_bytes(row.copied_out_bytes), 1e3 * row.planned_seconds);
      continue;
    }
    double busy = 0;
    double waited = 0;
    for (const auto& [lane, seconds] : row.lanes) {
      busy += seconds.busy;
      waited += seconds.waited;
    }
    fmt::print(
        "{:>5.0f}% {:>11} {:<10} {:<{}} {:>11} {:>11} {:>11} {:>7.1f} ms {:>7.1f} ms {:>7.1f}% "
        "{:>7.1f} ms {:>7.1f} ms  {}\n",
        100 * row.share, budget, row.wanted, row.plan, width, format_bytes(row.peak_bytes),
        format_bytes(row.host_bytes + row.disk_bytes), format_bytes(row.copied_out_bytes),
        1e3 * row.planned_seconds, 1e3 * row.step_seconds, 100 * row.added_share, 1e3 * busy,
        1e3 * waited, hidden_text(row));
  }
}

nlohmann::ordered_json offload_json(const std::vector<train::BudgetRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    nlohmann::ordered_json lanes = nlohmann::ordered_json::object();
    for (const auto& [lane, seconds] : row.lanes) {
      lanes[std::string(to_string(lane))] = {{"busy_seconds", seconds.busy},
                                             {"waited_seconds", seconds.waited}};
    }
    list.push_back({{"share", row.share},
                    {"budget_bytes", row.budget_bytes},
                    {"may", row.wanted},
                    {"fits", row.fits},
                    {"runs", row.runs},
                    {"plan", row.plan},
                    {"planned_peak_bytes", row.planned_peak_bytes},
                    {"peak_bytes", row.peak_bytes},
                    {"host_bytes", row.host_bytes},
                    {"disk_bytes", row.disk_bytes},
                    {"copied_out_bytes", row.copied_out_bytes},
                    {"planned_seconds", row.planned_seconds},
                    {"step_seconds", row.step_seconds},
                    {"added_share", row.added_share},
                    {"planned_added", row.planned_added},
                    {"lanes", std::move(lanes)},
                    {"planning_seconds", row.planning_seconds}});
  }
  return list;
}

}  // namespace

void add_bench_offload(CLI::App& bench, Chosen& chosen) {
  CLI::App* command = bench.add_subcommand(
      "offload",
      "what memory.host_budget and memory.disk gain: plans that run again, that move, and that do "
      "both");
  const auto options = std::make_shared<train::BudgetOptions>();
  options->offloads = true;
  command
      ->add_option_function<double>(
          "--link", [options](double gigabytes) { options->link = gigabytes * 1e9; },
          "GB/s each way between an emulated device and its host (--run.device emulated, "
          "--memory.host_budget), by which plans go, too; as fast as they are where not given")
      ->check(CLI::PositiveNumber);
  set_budget_benchmark(*command, options, {print_offload_rows, offload_json}, chosen);
}

}  // namespace garonne::apps
