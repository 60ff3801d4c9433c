// One micro-batch as a graph of tasks for solvers: forward tasks may run any number of times,
// backward tasks and messages run once. The file format is "garonne.graph" (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace garonne::plan {

struct TaskValue {
  std::string name;
  std::int64_t bytes = 0;
  bool live_at_start = false;  // such a value is made by no task
  bool live_at_end = false;    // as the gradients of parameters
};

// One way to run a task: a forward without its record, or with another one than in option 0; a
// backward from that other one.
struct TaskOption {
  std::string name;
  std::vector<int> makes;  // value indices
  double seconds = 0;
  std::int64_t transient_bytes = 0;
  std::vector<int> reads = {};  // beside those of the task; only in a task that is once
};

struct Task {
  std::string name;
  std::vector<int> reads;  // value indices: of every option
  std::vector<int>
      updates;  // values that it reads and writes in place; only in a task that is once
  std::vector<TaskOption> options;
  bool once = false;  // runs exactly once; else at least once
};

// Every value is made by one task at most, though not by each of its options. Tasks are in a
// topological order in which running each one once, with option 0, is a legal schedule.
struct ComputationGraph {
  std::vector<TaskValue> values;
  std::vector<Task> tasks;
};

// A schedule: tasks in the order in which they run. What is live follows from it: a value made is
// live from its task on to its last reader before the task that makes it the next time (to the end
// if it is wanted there), and is freed at once where nobody reads it. The peak of a step is what is
// live before it + what it makes + its transient bytes; frees act after it. Tasks that run once
// keep the order of the list among themselves.
struct TaskStep {
  int task = 0;
  int option = 0;
};
using TaskSchedule = std::vector<TaskStep>;

}  // namespace garonne::plan
