#include "train/setup/pipeline_schedule.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/error.hpp"

namespace garonne::train {
namespace {

// What a schedule calls what it is asked for, as the run file does.
std::string key_of_request(const std::string& option) {
  for (const auto& [asked, key] :
       {std::pair{"--stages", "grid.pipeline"}, std::pair{"--chunks", "grid.chunks"},
        std::pair{"--group-size", "grid.group_size"}, std::pair{"--file", "grid.schedule_file"},
        std::pair{"--schedule", "grid.schedule"}}) {
    if (option == asked) return key;
  }
  return option;
}

}  // namespace

plan::PipelineSchedule pipeline_schedule_of(const Setup& setup) {
  const auto& keys = setup.config.grid;
  plan::PipelineRequest request;
  request.stages = static_cast<int>(keys.pipeline);
  request.micro_batches = setup.step.micro_batches;
  if (keys.chunks > 0) request.chunks = static_cast<int>(keys.chunks);
  if (keys.group_size > 0) request.group_size = static_cast<int>(keys.group_size);
  request.file = keys.schedule_file;
  try {
    return plan::make_pipeline_schedule(keys.schedule, request);
  } catch (const ConfigError& error) {
    if (error.key().empty()) throw;
    if (error.key() == "--micro-batches") {
      throw ConfigError("train.global_batch", "",
                        fmt::format("makes {} micro-batches a step on a rank: {}", error.value(),
                                    error.reason()));
    }
    throw ConfigError(key_of_request(error.key()), error.value(), error.reason());
  }
}

}  // namespace garonne::train
