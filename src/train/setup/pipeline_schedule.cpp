#include "train/setup/pipeline_schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/wrapped.hpp"
#include "plan/program/passes_overlap.hpp"
#include "plan/step/passes_in_turn.hpp"

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

// Lines for what begins with "note: ".
std::string note_lines(const std::string& note) {
  constexpr std::size_t indent = std::string_view("note: ").size();
  return fmt::format("{}\n", wrapped(note, most_table_columns, indent));
}

// Of passes that a schedule lets overlap; empty where they do (plan::passes_can_overlap).
std::string why_in_turn(const OtherAxes& others) {
  if (others.tensor == 1)
    return "what could overlap is communication over tensor ranks, and grid.tensor is 1";
  if (others.zero == 3 && others.data > 1)
    return "with grid.zero = 3 parameters would be gathered at each change between them";
  return "";
}

OtherAxes other_axes_of(const Setup& setup) {
  return {setup.grid.shape().data, setup.grid.shape().tensor, setup.step.zero};
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

std::string overlap_note(const std::string& schedule, const OtherAxes& others) {
  const std::string reason = why_in_turn(others);
  const std::string note =
      reason.empty()
          ? fmt::format(
                "note: of two passes that {} lets overlap one computes while the other "
                "communicates over its tensor ranks",
                schedule)
          : fmt::format("note: passes that {} lets overlap run one after the other here: {}",
                        schedule, reason);
  return note_lines(note);
}

std::string describe_overlaps(const Setup& setup) {
  const auto& keys = setup.config.grid;
  if (keys.pipeline == 1 || !pipeline_schedule_of(setup).has_overlaps()) return "";
  return overlap_note(keys.schedule == "file" ? keys.schedule_file : keys.schedule,
                      other_axes_of(setup));
}

bool runs_in_turn(const Setup& stage, const plan::Program& program) {
  return plan::passes_can_overlap(stage.step) && !plan::passes_overlap(program);
}

std::string in_turn_note(const std::vector<int>& stages) {
  if (stages.empty()) return "";
  return note_lines(fmt::format(
      "note: the {} of {} {} {} one after the other what could overlap: together it may not fit",
      stages.size() == 1 ? "plan" : "plans", stages.size() == 1 ? "stage" : "stages",
      fmt::join(stages, ", "), stages.size() == 1 ? "runs" : "run"));
}

std::string in_turn_note(const Setup& stage, const plan::Program& program, dist::Session& session) {
  const std::vector<std::int64_t> in_turn =
      session.all_gather(std::vector<std::int64_t>{runs_in_turn(stage, program) ? 1 : 0});
  std::set<int> stages;
  for (std::size_t rank = 0; rank < in_turn.size(); ++rank) {
    if (in_turn[rank] != 0)
      stages.insert(stage.grid.coordinates_of(static_cast<int>(rank)).pipeline);
  }
  return in_turn_note(std::vector<int>(stages.begin(), stages.end()));
}

}  // namespace garonne::train
