// The meaning of a pipeline schedule, spelled out slowly: what the check and the simulation are
// held against.
#pragma once

#include <optional>
#include <random>
#include <vector>

#include "plan/pipeline/schedule.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/simulation.hpp"

namespace garonne::plan::test {

// Of that size, with nothing else asked for.
PipelineRequest request(int stages, int micro_batches);

// Start of every operation, by device and position; nothing where the schedule does not compute
// every gradient exactly once, or waits for ever.
std::optional<std::vector<std::vector<double>>> slow_starts(const PipelineSchedule& schedule,
                                                            const PipelineCosts& costs);

// Peak of each device by looking at every moment at which something begins.
std::vector<double> slow_peaks(const PipelineSchedule& schedule, const PipelineOutcome& outcome);

// Seconds of each phase, no two alike and none 0.
PhaseSeconds random_phases(std::mt19937& random);

}  // namespace garonne::plan::test
