// What is live along a schedule of tasks, by the rule of computation_graph.hpp. For planners; the
// checkers have their own.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/graph/computation_graph.hpp"

namespace garonne::plan {

struct LivenessTrace {
  std::vector<std::int64_t> live_bytes;    // after each step
  std::vector<std::int64_t> during_bytes;  // peak during each step
  double seconds = 0;
  std::int64_t peak_bytes = 0;
};

// Of all or a part of a graph's tasks. Values that the schedule reads and does not make before are
// live from the start. By value: `counted` or of no bytes here, `wanted_at_end` or dead after its
// last reader.
LivenessTrace trace_liveness(const ComputationGraph& graph, const TaskSchedule& schedule,
                             const std::vector<bool>& counted,
                             const std::vector<bool>& wanted_at_end);
// Of a whole graph.
LivenessTrace trace_liveness(const ComputationGraph& graph, const TaskSchedule& schedule);

}  // namespace garonne::plan
