// Steps as they ran, in the trace-event format that Perfetto and chrome://tracing show.
// Source: "Trace Event Format", the Chromium project's description of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

struct TracedStep {
  std::int64_t step = 0;
  double begin_seconds = 0;  // from the beginning of the trace, the same on all ranks
  double seconds = 0;
  std::vector<Measurement> measurements;  // one an instruction
  // After each instruction, on tiers below the device; as far as there are any.
  std::map<Tier, std::vector<std::int64_t>> live_bytes_below;
};

// The events of one rank, with commas between them and none at the end; one rank is one process of
// the trace, with a thread for the steps, one for Compute, and spans beside for every other lane.
// What runs on Compute has the seconds that were measured, one instruction after the other; what
// runs beside begins where it was issued and ends where it has been waited for. Counters are the
// live bytes of every tier. `host`: where the rank is. InternalError for measurements of another
// Program.
std::string trace_events(const Program& program, const std::string& host,
                         const std::vector<TracedStep>& steps);

// The whole file, of the events of several ranks.
std::string trace_file(const std::vector<std::string>& events_of_ranks);

}  // namespace garonne::plan
