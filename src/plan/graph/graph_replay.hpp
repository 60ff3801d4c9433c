// Replay of a schedule of tasks: is it legal, how many bytes, how many seconds. Knows nothing of
// how the schedule was made and shares no code with solvers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/graph/computation_graph.hpp"

namespace garonne::plan {

// Thrown for an illegal schedule: the index of the step (the number of steps where the end is
// wrong) and what is wrong with it.
class ScheduleError : public Error {
 public:
  ScheduleError(int step, const std::string& reason);
  int step() const { return step_; }

 private:
  int step_;
};

struct ScheduleOutcome {
  double seconds = 0;
  std::int64_t peak_bytes = 0;
  int peak_step = -1;                      // -1: the start
  std::vector<std::int64_t> during_bytes;  // peak during each step
  std::vector<std::int64_t> live_bytes;    // after each step
};

// Throws ScheduleError where a step names no task or option, reads what is not live, a task that is
// once runs twice or before an earlier one, a task is missing, or a wanted value is not live at the
// end. Values that are live at the start and that nobody reads before they are made count for
// nothing. A budget is the caller's to compare.
ScheduleOutcome replay_schedule(const ComputationGraph& graph, const TaskSchedule& schedule);

// Every task once, in the order of the list, with option 0.
TaskSchedule keep_all_schedule(const ComputationGraph& graph);

}  // namespace garonne::plan
