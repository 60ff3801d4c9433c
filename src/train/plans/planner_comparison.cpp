#include "train/plans/planner_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/wrapped.hpp"
#include "train/plans/candidate_planner.hpp"

namespace garonne::train {
namespace {

const plan::RankedGrid& best_of(const PlannerComparison& comparison) {
  return comparison.automatic.search.best.front();
}

bool is_planned(const PlannerRow& row) {
  return row.outcome && row.outcome->fits;
}

double to_automatic(const PlannerRow& row, const PlannerComparison& comparison) {
  return row.outcome->seconds / best_of(comparison).outcome.seconds;
}

nlohmann::ordered_json outcome_json(const plan::GridOutcome& outcome) {
  if (!outcome.fits) return {{"fits", false}, {"needed_bytes", outcome.needed_bytes}};
  return {{"fits", true}, {"seconds", outcome.seconds}, {"peak_bytes", outcome.peak_bytes}};
}

std::string planned_as(const PlannerRow& row) {
  return row.choice.grid ? plan::to_string(*row.choice.grid) : "-";
}

std::string notes_of(const PlannerRow& row) {
  std::string text = row.choice.note;
  if (row.outcome && !row.outcome->fits) {
    text += fmt::format("{}does not fit: Garonne needs {} for it", text.empty() ? "" : "; ",
                        format_bytes(row.outcome->needed_bytes));
  }
  return text;
}

// Planner, its own ms, what it is planned as, ms a step, ratio, and its choice in its own words.
using Cells = std::array<std::string, 6>;

std::string milliseconds(double seconds) {
  return std::isfinite(seconds) ? fmt::format("{:.3f}", 1e3 * seconds) : "-";
}

Cells cells_of(const PlannerRow& row, const PlannerComparison& comparison) {
  const bool planned = is_planned(row);
  return {row.name,
          milliseconds(row.choice.seconds),
          planned_as(row),
          planned ? milliseconds(row.outcome->seconds) : "-",
          planned ? fmt::format("{:.3f}", to_automatic(row, comparison)) : "-",
          row.choice.words};
}

// A row and what continues its last column.
std::string format_row(const Cells& cells) {
  const auto& [planner, own, grid, seconds, ratio, choice] = cells;
  const std::string numbers =
      fmt::format("{:<10} {:>11}  {:>11} {:>7}  ", planner, own, seconds, ratio);
  std::string last = wrapped(grid, most_table_columns - numbers.size());
  if (!choice.empty()) {
    last += fmt::format(
        "\n{}", wrapped(fmt::format("chose {}", choice), most_table_columns - numbers.size()));
  }
  std::string text = numbers;
  for (const char character : last) {
    text += character;
    if (character == '\n') text.append(numbers.size(), ' ');
  }
  return text + "\n";
}

std::string format_table(const std::vector<Cells>& rows) {
  std::string text;
  for (const Cells& cells : rows) text += format_row(cells);
  return text;
}

}  // namespace

PlannerComparison compare_planners(const GridSearchRequest& wish, const std::string& names) {
  const auto planners = plan::planners_of(names);
  PlannerComparison comparison;
  comparison.automatic = search_grids_of_run(wish);
  const Setup model = setup_of_model(wish, 1, false, 1);
  plan::PlannerProblem problem({.cluster = wish.cluster,
                                .limits = limits_of(wish, model),
                                .micro_batch = wish.config.train.micro_batch,
                                .budget_bytes = wish.budget_bytes,
                                .step = model.step,
                                .blocks = blocks_of(wish)});
  CandidatePlanner planner(wish);
  for (const plan::NamedPlanner* named : planners) {
    if (wish.options.progress) {
      const std::int64_t grids = comparison.automatic.search.candidates;
      wish.options.progress(grids, grids, std::string(named->name));
    }
    PlannerRow row{std::string(named->name), named->choose(problem), std::nullopt};
    if (row.choice.grid) {
      try {
        row.outcome = planner.plan(*row.choice.grid);
      } catch (const ConfigError& error) {
        row.choice.note += fmt::format("{}cannot be planned: {}",
                                       row.choice.note.empty() ? "" : "; ", error.what());
      }
    }
    comparison.rows.push_back(std::move(row));
  }
  return comparison;
}

std::string format_planners(const GridSearchRequest& wish, const PlannerComparison& comparison) {
  const plan::RankedGrid& best = best_of(comparison);
  std::string text =
      fmt::format("{} on {}: nodes of {}, {} a rank; global batch {}\n",
                  counted(wish.ranks, "rank"), wish.cluster.name, wish.cluster.devices_per_node,
                  format_bytes(wish.budget_bytes), wish.config.train.global_batch);
  std::vector<Cells> rows = {
      {"planner", "its own ms", "planned as", "ms a step", "/ auto", ""},
      {"auto", milliseconds(best.estimate.seconds), plan::to_string(best.candidate),
       milliseconds(best.outcome.seconds), "1.000", ""}};
  for (const PlannerRow& row : comparison.rows) rows.push_back(cells_of(row, comparison));
  text += format_table(rows);
  for (const PlannerRow& row : comparison.rows) {
    const std::string notes = notes_of(row);
    if (!notes.empty()) text += below_table(fmt::format("{}: {}", row.name, notes));
  }
  text +=
      "stages are cut by their seconds and blocks run again where memory asks for it, whatever a "
      "planner\nchose of that; blocks are counted from 0\n";
  if (!comparison.automatic.search.proven)
    text += "auto: other grids were left by estimates, and one of them may be faster\n";
  if (comparison.rows.size() == 1 && is_planned(comparison.rows.front()))
    text += keys_of(*comparison.rows.front().choice.grid);
  return text;
}

nlohmann::ordered_json to_json(const GridSearchRequest& wish, const PlannerComparison& comparison) {
  const plan::RankedGrid& best = best_of(comparison);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const PlannerRow& row : comparison.rows) {
    nlohmann::ordered_json placed = nlohmann::ordered_json::array();
    for (const plan::PlacedBlocks& run : row.choice.placed) {
      placed.push_back({{"first", run.first},
                        {"last", run.last - 1},
                        {"data", run.data},
                        {"tensor", run.tensor},
                        {"recomputes", run.recomputes}});
    }
    nlohmann::ordered_json json = {
        {"planner", row.name},         {"choice", row.choice.words},
        {"placed", std::move(placed)}, {"micro_batch", row.choice.micro_batch},
        {"own_seconds", nullptr},      {"grid", nullptr},
        {"outcome", nullptr},          {"to_auto", nullptr},
        {"note", row.choice.note}};
    if (std::isfinite(row.choice.seconds)) json["own_seconds"] = row.choice.seconds;
    if (row.choice.grid) json["grid"] = keys_json(wish, *row.choice.grid);
    if (row.outcome) json["outcome"] = outcome_json(*row.outcome);
    if (is_planned(row)) json["to_auto"] = to_automatic(row, comparison);
    rows.push_back(std::move(json));
  }
  return {{"format", "garonne.planners"},
          {"version", 1},
          {"ranks", wish.ranks},
          {"cluster", wish.cluster.name},
          {"devices_per_node", wish.cluster.devices_per_node},
          {"budget_bytes", wish.budget_bytes},
          {"costs", comparison.automatic.measured ? "measured" : "nominal"},
          {"auto",
           {{"grid", keys_json(wish, best.candidate)},
            {"seconds_estimated", best.estimate.seconds},
            {"outcome", outcome_json(best.outcome)},
            {"proven", comparison.automatic.search.proven}}},
          {"planners", std::move(rows)}};
}

}  // namespace garonne::train
