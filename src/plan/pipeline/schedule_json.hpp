// The file format "garonne.pipeline-schedule", version 1 (docs/formats.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "plan/pipeline/schedule.hpp"
#include "plan/pipeline/simulation.hpp"

namespace garonne::plan {

nlohmann::ordered_json to_json(const PipelineSchedule& schedule);

// Throws ConfigError with the path and the key for text that is no such file. Whether the schedule
// can be run is left to find_fault.
PipelineSchedule pipeline_schedule_from_text(const std::string& text, const std::string& path);

// The format "garonne.simulation", version 1. `costs` are what was simulated, `device` those of a
// device where they are even.
nlohmann::ordered_json simulation_json(const PipelineSchedule& schedule,
                                       const std::optional<PhaseSeconds>& device,
                                       const PipelineCosts& costs, const PipelineOutcome& outcome);

}  // namespace garonne::plan
