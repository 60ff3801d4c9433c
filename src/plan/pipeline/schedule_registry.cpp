#include "plan/pipeline/schedule_registry.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/pipeline/schedule_check.hpp"
#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {

// The maker is in a file of its own.
#define GARONNE_SCHEDULE(name, summary, make)            \
  PipelineSchedule make(const PipelineRequest& request); \
  kinds.push_back({name, summary, make})

const std::vector<PipelineScheduleKind>& pipeline_schedule_kinds() {
  static const std::vector<PipelineScheduleKind> registry = [] {
    std::vector<PipelineScheduleKind> kinds;
    GARONNE_SCHEDULE("gpipe", "all forwards, then all backwards", make_gpipe);
    GARONNE_SCHEDULE("1f1b", "a forward and a backward in turn", make_one_forward_one_backward);
    GARONNE_SCHEDULE("interleaved", "1f1b with several chunks a device", make_interleaved);
    GARONNE_SCHEDULE("varuna", "keeps inputs only and runs the forward again", make_varuna);
    GARONNE_SCHEDULE("chimera", "two directions, twice the weights", make_chimera);
    GARONNE_SCHEDULE("zb-h1", "weight gradients fill the bubble, memory of 1f1b", make_zb_h1);
    GARONNE_SCHEDULE("zb-h2", "no bubble between devices, twice the memory", make_zb_h2);
    GARONNE_SCHEDULE("zb-v", "two chunks in a V, no bubble, memory of 1f1b", make_zb_v);
    GARONNE_SCHEDULE("dualpipev", "two chunks in a V, forwards overlap backwards", make_dualpipev);
    GARONNE_SCHEDULE("file", "a schedule of one's own", make_from_file);
    return kinds;
  }();
  return registry;
}

#undef GARONNE_SCHEDULE

PipelineSchedule make_pipeline_schedule(const std::string& name, const PipelineRequest& request) {
  const auto& kinds = pipeline_schedule_kinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                 [&name](const auto& row) { return row.name == name; });
  if (kind == kinds.end()) {
    std::string names;
    for (const auto& row : kinds) names += (names.empty() ? "" : ", ") + std::string(row.name);
    throw ConfigError("--schedule", name, "is none of " + names);
  }
  const bool own = kind->name == "file";
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
