#include "plan/pipeline/schedule_json.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json_input.hpp"

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

// A list of `size`.
std::vector<JsonPlace> elements_of(const JsonPlace& place, std::size_t size) {
  std::vector<JsonPlace> elements = place.elements();
  if (elements.size() != size)
    place.refuse(fmt::format("is a list of {}, not {}", elements.size(), size));
  return elements;
}

int integer_of(const JsonPlace& place, int least, int most) {
  if (!place.json().is_number_integer() || place.json() < least || place.json() > most)
    place.refuse(fmt::format("is no integer from {} to {}", least, most));
  return place.json().get<int>();
}

template <class Words>
typename Words::value_type word_of(const JsonPlace& place, const Words& words) {
  std::string choices;
  for (const auto candidate : words) {
    if (place.json() == std::string(to_string(candidate))) return candidate;
    choices += (choices.empty() ? "" : ", ") + std::string(to_string(candidate));
  }
  place.refuse("is none of " + choices);
}

void read_recomputed(const JsonPlace& source, PipelineSchedule& schedule) {
  for (const JsonPlace& place : source.elements()) {
    const std::vector<JsonPlace> pair = elements_of(place, 2);
    schedule.recomputed.push_back({integer_of(pair[0], 0, schedule.devices - 1),
                                   integer_of(pair[1], 0, schedule.chunks - 1)});
  }
}

void read_order(const JsonPlace& source, PipelineSchedule& schedule) {
  for (const JsonPlace& lane : elements_of(source, static_cast<std::size_t>(schedule.devices))) {
    auto& order = schedule.order.emplace_back();
    for (const JsonPlace& place : lane.elements()) {
      const std::vector<JsonPlace> triple = elements_of(place, 3);
      order.push_back({word_of(triple[0], all_work), integer_of(triple[1], 0, schedule.chunks - 1),
                       integer_of(triple[2], 0, schedule.micro_batches - 1), false});
    }
  }
}

void read_overlaps(const JsonPlace& source, PipelineSchedule& schedule) {
  const auto lanes = elements_of(source, static_cast<std::size_t>(schedule.devices));
  for (std::size_t r = 0; r < lanes.size(); ++r) {
    const int last = static_cast<int>(schedule.order[r].size()) - 1;
    for (const JsonPlace& place : lanes[r].elements())
      schedule.order[r][static_cast<std::size_t>(integer_of(place, 0, last))].overlaps_next = true;
  }
}

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
  const json source = parse_json(text, path);
  const JsonFile file(source, path);
  const JsonPlace root = file.root();
  root.expect_format(format_name, 1);
  root.expect_keys({"format", "version", "stages", "micro_batches", "order"},
                   {"name", "chunks", "placement", "recompute", "overlaps"});
  PipelineSchedule schedule;
  schedule.name = root.has("name") ? root.key("name").text() : "file";
  schedule.devices = integer_of(root.key("stages"), 1, most_pipeline_devices);
  schedule.micro_batches = integer_of(root.key("micro_batches"), 1, most_pipeline_micro_batches);
  schedule.chunks =
      root.has("chunks") ? integer_of(root.key("chunks"), 1, most_pipeline_chunks) : 1;
  if (root.has("placement")) schedule.placement = word_of(root.key("placement"), all_placements);
  if (root.has("recompute")) read_recomputed(root.key("recompute"), schedule);
  read_order(root.key("order"), schedule);
  if (root.has("overlaps")) read_overlaps(root.key("overlaps"), schedule);
  return schedule;
}

ordered_json simulation_json(const PipelineSchedule& schedule,
                             const std::optional<PhaseSeconds>& device, const PipelineCosts& costs,
                             const PipelineOutcome& outcome) {
  ordered_json result = {{"format", "garonne.simulation"},
                         {"version", 1},
                         {"schedule", schedule.name},
                         {"stages", schedule.devices},
                         {"micro_batches", schedule.micro_batches},
                         {"chunks", schedule.chunks},
                         {"placement", to_string(schedule.placement)}};
  if (device) {
    result["forward"] = device->forward;
    result["backward_input"] = device->backward_input;
    result["backward_weight"] = device->backward_weight;
  } else {
    ordered_json& chunks = result["chunk_seconds"] = ordered_json::array();
    for (const PhaseSeconds& chunk : costs.chunks)
      chunks.push_back({chunk.forward, chunk.backward_input, chunk.backward_weight});
  }
  result["communication"] = costs.hop_seconds;
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
