// Pipeline schedules by name. A new one is a file beside this and a line in schedule_registry.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/pipeline/schedule.hpp"

namespace garonne::plan {

// What a schedule is made for. What is not given, a schedule chooses; what it cannot use, it
// refuses.
struct PipelineRequest {
  std::optional<int> stages;         // devices P; only `file` can do without
  std::optional<int> micro_batches;  // M of a step; only `file` can do without
  std::optional<int> chunks;         // v of a device
  std::optional<int> group_size;     // micro-batches that pass one chunk in a row
  std::string file;                  // of schedule "file"
};

struct PipelineScheduleKind {
  std::string_view name;
  std::string_view summary;
  PipelineSchedule (*make)(const PipelineRequest&);
};

const std::vector<PipelineScheduleKind>& pipeline_schedule_kinds();

// The schedule of that name, checked. Throws ConfigError for an unknown name, for a request that
// this schedule cannot meet (with the nearest ones that it can), and for a file whose schedule the
// check rejects (with device and operation).
PipelineSchedule make_pipeline_schedule(const std::string& name, const PipelineRequest& request);

}  // namespace garonne::plan
