// A schedule of the user's own, from a file of the format garonne.pipeline-schedule.
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/pipeline/schedule_json.hpp"
#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {
namespace {

void expect_same(const char* key, const std::optional<int>& given, int in_file) {
  if (!given || *given == in_file) return;
  throw ConfigError(key, fmt::format("{}", *given), fmt::format("the file has {}", in_file));
}

}  // namespace

PipelineSchedule make_from_file(const PipelineRequest& request) {
  if (request.file.empty())
    throw ConfigError("--file", "", "is needed for schedule file: the path of the schedule");
  PipelineSchedule schedule = pipeline_schedule_from_text(
      read_file_of_key("--file", request.file, "give the path of a garonne.pipeline-schedule"),
      request.file);
  expect_same("--stages", request.stages, schedule.devices);
  expect_same("--micro-batches", request.micro_batches, schedule.micro_batches);
  expect_same("--chunks", request.chunks, schedule.chunks);
  if (request.group_size) {
    throw ConfigError("--group-size", fmt::format("{}", *request.group_size),
                      "a file says its order itself");
  }
  return schedule;
}

}  // namespace garonne::plan
