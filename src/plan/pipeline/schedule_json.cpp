#include "plan/pipeline/schedule_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* format_name = "garonne.pipeline-schedule";
constexpr std::array all_work = {PipelineWork::Forward, PipelineWork::Backward,
                                 PipelineWork::BackwardInput, PipelineWork::BackwardWeight,
                                 PipelineWork::Recompute};
constexpr std::array all_placements = {ChunkPlacement::Looped, ChunkPlacement::V,
                                       ChunkPlacement::Bidirectional};

// Reads a file; errors name the path and the key.
class ScheduleReader {
 public:
  ScheduleReader(const json& root, const std::string& path) : root_(root), path_(path) {}

  PipelineSchedule read() const {
    check_keys();
    PipelineSchedule schedule;
    schedule.name = root_.contains("name") ? text("name") : "file";
    schedule.devices = count("stages", most_pipeline_devices);
    schedule.micro_batches = count("micro_batches", most_pipeline_micro_batches);
    schedule.chunks = root_.contains("chunks") ? count("chunks", most_pipeline_chunks) : 1;
    if (root_.contains("placement"))
      schedule.placement = word("placement", root_["placement"], all_placements);
    if (root_.contains("recompute")) read_recomputed(schedule);
    read_order(schedule);
    if (root_.contains("overlaps")) read_overlaps(schedule);
    return schedule;
  }

 private:
  [[noreturn]] void fail(const std::string& key, const json& value,
                         const std::string& reason) const {
    throw ConfigError(path_ + ": " + key, value.dump().substr(0, 80), reason);
  }

  void check_keys() const {
    if (!root_.is_object()) fail("the file", root_, "is no object");
    constexpr std::array needed = {"format", "version", "stages", "micro_batches", "order"};
    constexpr std::array allowed = {"name", "chunks", "placement", "recompute", "overlaps"};
    for (const char* key : needed) {
      if (!root_.contains(key)) throw ConfigError(path_ + ": " + key, "", "is missing");
    }
    for (const auto& [key, value] : root_.items()) {
      const auto is_key = [&key](const char* name) { return key == name; };
      if (!std::any_of(needed.begin(), needed.end(), is_key) &&
          !std::any_of(allowed.begin(), allowed.end(), is_key))
        fail(key, value, "is no key of this version");
    }
    if (root_["format"] != format_name)
      fail("format", root_["format"], std::string("is no ") + format_name);
    if (root_["version"] != 1) fail("version", root_["version"], "this build reads version 1");
  }

  std::string text(const char* key) const {
    if (!root_[key].is_string()) fail(key, root_[key], "is no text");
    return root_[key].get<std::string>();
  }

  int integer(const std::string& key, const json& value, int least, int most) const {
    if (!value.is_number_integer() || value < least || value > most)
      fail(key, value, fmt::format("is no integer from {} to {}", least, most));
    return value.get<int>();
  }
  int count(const char* key, int most) const { return integer(key, root_[key], 1, most); }

  const json& list(const std::string& key, const json& value) const {
    if (!value.is_array()) fail(key, value, "is no list");
    return value;
  }
  const json& list(const std::string& key, const json& value, std::size_t size) const {
    if (list(key, value).size() != size)
      fail(key, value, fmt::format("is a list of {}, not {}", value.size(), size));
    return value;
  }

  template <class Words>
  typename Words::value_type word(const std::string& key, const json& value,
                                  const Words& words) const {
    std::string choices;
    for (const auto candidate : words) {
      if (value == std::string(to_string(candidate))) return candidate;
      choices += (choices.empty() ? "" : ", ") + std::string(to_string(candidate));
    }
    fail(key, value, "is none of " + choices);
  }

  void read_recomputed(PipelineSchedule& schedule) const {
    const json& source = list("recompute", root_["recompute"]);
    for (std::size_t i = 0; i < source.size(); ++i) {
      const std::string key = fmt::format("recompute[{}]", i);
      const json& pair = list(key, source[i], 2);
      schedule.recomputed.push_back({integer(key, pair[0], 0, schedule.devices - 1),
                                     integer(key, pair[1], 0, schedule.chunks - 1)});
    }
  }

  void read_order(PipelineSchedule& schedule) const {
    const json& lanes = list("order", root_["order"], static_cast<std::size_t>(schedule.devices));
    for (std::size_t r = 0; r < lanes.size(); ++r) {
      const json& lane = list(fmt::format("order[{}]", r), lanes[r]);
      auto& order = schedule.order.emplace_back();
      for (std::size_t i = 0; i < lane.size(); ++i) {
        const std::string key = fmt::format("order[{}][{}]", r, i);
        const json& triple = list(key, lane[i], 3);
        order.push_back({word(key, triple[0], all_work),
                         integer(key, triple[1], 0, schedule.chunks - 1),
                         integer(key, triple[2], 0, schedule.micro_batches - 1), false});
      }
    }
  }

  void read_overlaps(PipelineSchedule& schedule) const {
    const json& lanes =
        list("overlaps", root_["overlaps"], static_cast<std::size_t>(schedule.devices));
    for (std::size_t r = 0; r < lanes.size(); ++r) {
      const std::string key = fmt::format("overlaps[{}]", r);
      for (const json& position : list(key, lanes[r])) {
        const int last = static_cast<int>(schedule.order[r].size()) - 1;
        schedule.order[r][static_cast<std::size_t>(integer(key, position, 0, last))].overlaps_next =
            true;
      }
    }
  }

  const json& root_;
  const std::string& path_;
};

ordered_json order_json(const PipelineSchedule& schedule) {
  ordered_json lanes = ordered_json::array();
  for (const auto& order : schedule.order) {
    ordered_json lane = ordered_json::array();
    for (const PipelineOperation& operation : order) {
      lane.push_back(
          ordered_json::array({to_string(operation.work), operation.chunk, operation.micro_batch}));
    }
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

// Positions, by device, of operations that overlap the next.
ordered_json overlaps_json(const PipelineSchedule& schedule) {
  ordered_json lanes = ordered_json::array();
  for (const auto& order : schedule.order) {
    ordered_json lane = ordered_json::array();
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (order[i].overlaps_next) lane.push_back(i);
    }
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

}  // namespace

ordered_json to_json(const PipelineSchedule& schedule) {
  ordered_json result = {{"format", format_name},
                         {"version", 1},
                         {"name", schedule.name},
                         {"stages", schedule.devices},
                         {"micro_batches", schedule.micro_batches},
                         {"chunks", schedule.chunks},
                         {"placement", to_string(schedule.placement)}};
  if (!schedule.recomputed.empty()) {
    ordered_json places = ordered_json::array();
    for (const ChunkPlace& place : schedule.recomputed) {
      places.push_back(ordered_json::array({place.device, place.chunk}));
    }
    result["recompute"] = std::move(places);
  }
  if (schedule.has_overlaps()) result["overlaps"] = overlaps_json(schedule);
  result["order"] = order_json(schedule);
  return result;
}

PipelineSchedule pipeline_schedule_from_text(const std::string& text, const std::string& path) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& error) {
    throw ConfigError(path, "", std::string("is no JSON: ") + error.what());
  }
  return ScheduleReader(root, path).read();
}

ordered_json simulation_json(const PipelineSchedule& schedule, const PhaseSeconds& device,
                             const PipelineCosts& costs, const PipelineOutcome& outcome) {
  ordered_json result = {{"format", "garonne.simulation"},
                         {"version", 1},
                         {"schedule", schedule.name},
                         {"stages", schedule.devices},
                         {"micro_batches", schedule.micro_batches},
                         {"chunks", schedule.chunks},
                         {"placement", to_string(schedule.placement)},
                         {"forward", device.forward},
                         {"backward_input", device.backward_input},
                         {"backward_weight", device.backward_weight},
                         {"communication", costs.hop_seconds}};
  if (costs.overlap_gain) result["overlap_gain"] = *costs.overlap_gain;
  result["makespan"] = outcome.makespan;
  result["bubble"] = outcome.bubble;
  result["spans"] = outcome.spans;
  result["peak_activations"] = outcome.peak_activations;
  if (!outcome.peak_inputs.empty()) result["peak_inputs"] = outcome.peak_inputs;
  result["order"] = order_json(schedule);
  return result;
}

}  // namespace garonne::plan
