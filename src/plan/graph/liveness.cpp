#include "plan/graph/liveness.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace garonne::plan {

LivenessTrace trace_liveness(const ComputationGraph& graph, const TaskSchedule& schedule,
                             const std::vector<bool>& counted,
                             const std::vector<bool>& wanted_at_end) {
  const std::size_t steps = schedule.size();
  // Backwards: is a value read later, before it is made the next time?
  std::vector<bool> wanted = wanted_at_end;
  std::vector<std::vector<int>> dies(steps);
  for (std::size_t i = steps; i-- > 0;) {
    const Task& task = graph.tasks[as_index(schedule[i].task)];
    const TaskOption& option = task.options[as_index(schedule[i].option)];
    for (const int value : option.makes) {
      if (!wanted[as_index(value)]) dies[i].push_back(value);
      wanted[as_index(value)] = false;
    }
    for (const auto* list : {&task.reads, &task.updates, &option.reads}) {
      for (const int value : *list) {
        if (!wanted[as_index(value)]) dies[i].push_back(value);
        wanted[as_index(value)] = true;
      }
    }
  }
  LivenessTrace trace;
  trace.live_bytes.reserve(steps);
  trace.during_bytes.reserve(steps);
  const auto bytes = [&](int value) {
    return counted[as_index(value)] ? graph.values[as_index(value)].bytes : 0;
  };
  std::int64_t live = 0;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (wanted[v]) live += bytes(static_cast<int>(v));
  }
  trace.peak_bytes = live;
  for (std::size_t i = 0; i < steps; ++i) {
    const Task& task = graph.tasks[as_index(schedule[i].task)];
    const TaskOption& option = task.options[as_index(schedule[i].option)];
    for (const int value : option.makes) live += bytes(value);
    trace.during_bytes.push_back(live + option.transient_bytes);
    trace.peak_bytes = std::max(trace.peak_bytes, trace.during_bytes.back());
    for (const int value : dies[i]) live -= bytes(value);
    trace.live_bytes.push_back(live);
    trace.seconds += option.seconds;
  }
  return trace;
}

LivenessTrace trace_liveness(const ComputationGraph& graph, const TaskSchedule& schedule) {
  std::vector<bool> at_end(graph.values.size(), false);
  for (std::size_t v = 0; v < graph.values.size(); ++v) at_end[v] = graph.values[v].live_at_end;
  return trace_liveness(graph, schedule, std::vector<bool>(graph.values.size(), true), at_end);
}

}  // namespace garonne::plan
