// All schedules side by side for the same sizes and costs.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/simulation.hpp"

namespace garonne::plan {

struct ScheduleComparison {
  std::string name;
  std::optional<PipelineOutcome> outcome;  // without a timeline
  std::string refusal;                     // why there is no outcome
  int chunks = 1;                          // of a device
  int weight_copies = 1;                   // 2 for bidirectional
};

// What a schedule costs. Throws ConfigError where it cannot be had.
using CostsOfSchedule = std::function<PipelineCosts(const PipelineSchedule&)>;

// Every schedule but `file`. Chunks and group size of the request are for those that take them.
// Throws ConfigError where stages or micro-batches are out of range, which is no matter of the
// schedule.
std::vector<ScheduleComparison> compare_pipeline_schedules(const PipelineRequest& request,
                                                           const CostsOfSchedule& costs_of);

std::string format_comparison(const std::vector<ScheduleComparison>& rows);
// The format "garonne.simulation-table", version 1.
nlohmann::ordered_json comparison_json(const std::vector<ScheduleComparison>& rows);

}  // namespace garonne::plan
