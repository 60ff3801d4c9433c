// What becomes of values and records between forward and backward, by local search over single
// nodes: drops what costs least time for the bytes that it takes off the peaks, or keeps it in
// another way, until the budget holds; then puts back and exchanges while that saves time.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/stage/task_graph.hpp"

namespace garonne::plan {

struct KeptSearchResult {
  NodeSchedule schedule;
  std::int64_t peak_bytes = 0;  // of the task graph, without its static bytes
  double seconds = 0;
};

// The schedule found within `budget_bytes` (of the task graph, without its static bytes), or none.
// `most_traces` bounds the work: a trace costs a microsecond a node or so.
std::optional<KeptSearchResult> search_kept(const ModelGraph& model, const TaskGraph& tasks,
                                            std::int64_t budget_bytes, std::int64_t most_traces);

// The leanest that the same drops come to.
KeptSearchResult search_leanest(const ModelGraph& model, const TaskGraph& tasks,
                                std::int64_t most_traces);

}  // namespace garonne::plan
