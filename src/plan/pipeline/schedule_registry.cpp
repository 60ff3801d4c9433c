#include "plan/pipeline/schedule_registry.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/pipeline/schedule_check.hpp"
#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {

const std::vector<PipelineScheduleKind>& pipeline_schedule_kinds() {
  static const std::vector<PipelineScheduleKind> kinds = {
      {"gpipe", "all forwards, then all backwards", make_gpipe},
      {"1f1b", "a forward and a backward in turn", make_one_forward_one_backward},
      {"interleaved", "1f1b with several chunks a device", make_interleaved},
      {"varuna", "keeps inputs only and runs the forward again", make_varuna},
      {"chimera", "two directions, twice the weights", make_chimera},
      {"zb-h1", "weight gradients fill the bubble, memory of 1f1b", make_zb_h1},
      {"zb-h2", "no bubble between devices, twice the memory", make_zb_h2},
      {"zb-v", "two chunks in a V, no bubble, memory of 1f1b", make_zb_v},
      {"dualpipev", "two chunks in a V, forwards overlap backwards", make_dualpipev},
      {"file", "a schedule of one's own", make_from_file},
  };
  return kinds;
}

PipelineSchedule make_pipeline_schedule(const std::string& name, const PipelineRequest& request) {
  const auto& kinds = pipeline_schedule_kinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                 [&name](const auto& row) { return row.name == name; });
  if (kind == kinds.end()) {
    std::string names;
    for (const auto& row : kinds) names += (names.empty() ? "" : ", ") + std::string(row.name);
    throw ConfigError("--schedule", name, "is none of " + names);
  }
  const bool own = kind->make == make_from_file;
  if (!own && !request.file.empty())
    throw ConfigError("--file", request.file, "only schedule file reads one");
  PipelineSchedule schedule = kind->make(request);
  if (const auto fault = find_fault(schedule)) {
    if (own) throw ConfigError("--file", request.file, "cannot be run: " + describe(*fault));
    throw InternalError(name + " made a schedule that cannot be run: " + describe(*fault));
  }
  return schedule;
}

}  // namespace garonne::plan
