#include "plan/pipeline/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

template <class Number>
std::string range(const std::vector<Number>& numbers) {
  const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  if (*least == *most) return fmt::format("{:.4g}", static_cast<double>(*most));
  return fmt::format("{:.4g} to {:.4g}", static_cast<double>(*least), static_cast<double>(*most));
}

}  // namespace

std::vector<ScheduleComparison> compare_pipeline_schedules(const PipelineRequest& request,
                                                           const CostsOfSchedule& costs_of) {
  // Any schedule takes all the sizes that gpipe takes, but for refusals of its own.
  PipelineRequest plain = request;
  plain.chunks.reset();
  plain.group_size.reset();
  make_pipeline_schedule("gpipe", plain);
  std::vector<ScheduleComparison> rows;
  for (const PipelineScheduleKind& kind : pipeline_schedule_kinds()) {
    if (kind.name == "file") continue;
    ScheduleComparison row;
    row.name = kind.name;
    try {
      const PipelineSchedule schedule =
          make_pipeline_schedule(row.name, row.name == "interleaved" ? request : plain);
      row.outcome = simulate_pipeline(schedule, costs_of(schedule));
      row.outcome->timeline.clear();
      row.weight_copies = schedule.placement == ChunkPlacement::Bidirectional ? 2 : 1;
      row.chunks = schedule.chunks;
    } catch (const ConfigError& error) {
      row.refusal = error.what();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string format_comparison(const std::vector<ScheduleComparison>& rows) {
  std::string text = fmt::format("{:<12}{:>8}{:>12}{:>12}{:>10}  {:<18}{:<16}{}\n", "schedule",
                                 "chunks", "makespan s", "bubble s", "bubble", "peak activations",
                                 "stashed inputs", "weights");
  for (const ScheduleComparison& row : rows) {
    if (!row.outcome) {
      text += fmt::format("{:<12}refused: {}\n", row.name, row.refusal);
      continue;
    }
    const PipelineOutcome& outcome = *row.outcome;
    text += fmt::format("{:<12}{:>8}{:>12.6g}{:>12.6g}{:>8.1f} %  {:<18}{:<16}× {}\n", row.name,
                        row.chunks, outcome.makespan, outcome.bubble,
                        100 * outcome.bubble / outcome.makespan, range(outcome.peak_activations),
                        outcome.peak_inputs.empty() ? "-" : range(outcome.peak_inputs),
                        row.weight_copies);
  }
  return text + "peaks: least and most of the devices, in micro-batches\n";
}

nlohmann::ordered_json comparison_json(const std::vector<ScheduleComparison>& rows) {
  nlohmann::ordered_json schedules = nlohmann::ordered_json::array();
  for (const ScheduleComparison& row : rows) {
    nlohmann::ordered_json entry = {{"schedule", row.name}};
    if (row.outcome) {
      entry["chunks"] = row.chunks;
      entry["makespan"] = row.outcome->makespan;
      entry["bubble"] = row.outcome->bubble;
      entry["spans"] = row.outcome->spans;
      entry["peak_activations"] = row.outcome->peak_activations;
      if (!row.outcome->peak_inputs.empty()) entry["peak_inputs"] = row.outcome->peak_inputs;
      entry["weight_copies"] = row.weight_copies;
    } else {
      entry["refused"] = row.refusal;
    }
    schedules.push_back(std::move(entry));
  }
  return {
      {"format", "garonne.simulation-table"}, {"version", 1}, {"schedules", std::move(schedules)}};
}

}  // namespace garonne::plan
