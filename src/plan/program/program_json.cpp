// The file format "garonne.program", version 2.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/lane.hpp"
#include "plan/model/file_seconds.hpp"
#include "plan/program/program.hpp"
#include "plan/program/trained_json.hpp"

namespace garonne::plan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Of all buffers or messages, so that sums of what a file says are numbers too.
constexpr std::int64_t most_bytes_in_all = std::int64_t{1} << 62;
// As most_file_bytes is.
constexpr std::int64_t most_granularity_bytes = std::int64_t{1} << 30;
constexpr std::int64_t most_keep_options = 256;

ordered_json arguments_to_json(const Arguments& arguments) {
  ordered_json result = ordered_json::object();
  const auto list = [&](const char* name, const std::vector<int>& ids) {
    if (!ids.empty()) result[name] = ids;
  };
  const auto one = [&](const char* name, int id) {
    if (id >= 0) result[name] = id;
  };
  for (const auto& loaded : arguments.loaded)
    result["loaded"].push_back({{"value", loaded.value}, {"buffer", loaded.buffer}});
  list("inputs", arguments.inputs);
  one("output", arguments.output);
  list("record", arguments.record);
  if (arguments.keep_option > 0) result["keep_option"] = arguments.keep_option;
  one("output_gradient", arguments.output_gradient);
  list("input_gradients", arguments.input_gradients);
  list("accumulated", arguments.accumulated);
  for (const Placement placement : arguments.placements)
    result["placements"].push_back(to_string(placement));
  one("pinned_output", arguments.pinned_output);
  one("exchanged", arguments.exchanged);
  if (!arguments.parameters.empty()) result["parameters"] = to_json(arguments.parameters);
  for (const auto& target : arguments.parameter_gradients) {
    result["parameter_gradients"].push_back({{"parameter", target.parameter},
                                             {"range", to_json(target.range)},
                                             {"accumulate", target.accumulate}});
  }
  if (!arguments.zeroed.empty()) result["zeroed"] = to_json(arguments.zeroed);
  one("value", arguments.value);
  if (arguments.part.buffer >= 0) result["part"] = to_json(arguments.part);
  list("pieces", arguments.pieces);
  for (const StandIn& pair : arguments.stand_ins)
    result["stand_ins"].push_back({pair.buffer, pair.on_host});
  if (arguments.gradient) result["gradient"] = true;
  if (arguments.drops_loss) result["drops_loss"] = true;
  one("staging", arguments.staging);
  return result;
}

// Adds to what others of the file have.
void add_bytes(std::int64_t bytes, std::int64_t& in_all, const JsonPlace& place) {
  in_all += bytes;
  if (in_all > most_bytes_in_all) place.refuse("makes more than 2^62 in all");
}

bool truth_or_no(const JsonPlace& place, std::string_view key) {
  return place.has(key) && place.key(key).truth();
}

template <typename Enumeration, int Count>
Enumeration enumeration_from(const JsonPlace& place) {
  const std::string text = place.text();
  for (int i = 0; i < Count; ++i) {
    if (to_string(static_cast<Enumeration>(i)) == text) return static_cast<Enumeration>(i);
  }
  place.refuse("is not known to this version");
}

Lane lane_of(const JsonPlace& place) {
  const std::string text = place.text();
  for (const LaneKind& kind : lanes()) {
    if (kind.name == text) return kind.lane;
  }
  place.refuse("is not known to this version");
}

Arguments arguments_from_json(const JsonPlace& source) {
  source.expect_keys({}, {"loaded",
                          "inputs",
                          "output",
                          "record",
                          "keep_option",
                          "output_gradient",
                          "input_gradients",
                          "accumulated",
                          "placements",
                          "pinned_output",
                          "exchanged",
                          "parameters",
                          "parameter_gradients",
                          "zeroed",
                          "value",
                          "part",
                          "pieces",
                          "stand_ins",
                          "gradient",
                          "drops_loss",
                          "staging"});
  // An input gradient that nobody wants is -1.
  const auto list = [&](std::string_view key) {
    std::vector<int> ids;
    if (!source.has(key)) return ids;
    for (const JsonPlace& id : source.key(key).elements())
      ids.push_back(static_cast<int>(id.integer(-1, INT32_MAX)));
    return ids;
  };
  Arguments arguments;
  if (source.has("loaded")) {
    for (const JsonPlace& loaded : source.key("loaded").elements()) {
      loaded.expect_keys({"value", "buffer"});
      arguments.loaded.push_back({index_of(loaded.key("value")), index_of(loaded.key("buffer"))});
    }
  }
  arguments.inputs = list("inputs");
  arguments.output = index_or_none(source, "output");
  arguments.record = list("record");
  if (source.has("keep_option")) {
    arguments.keep_option =
        static_cast<int>(source.key("keep_option").integer(0, most_keep_options - 1));
  }
  arguments.output_gradient = index_or_none(source, "output_gradient");
  arguments.input_gradients = list("input_gradients");
  arguments.accumulated = list("accumulated");
  arguments.pinned_output = index_or_none(source, "pinned_output");
  arguments.exchanged = index_or_none(source, "exchanged");
  if (source.has("placements")) {
    for (const JsonPlace& placement : source.key("placements").elements())
      arguments.placements.push_back(enumeration_from<Placement, placement_count>(placement));
  }
  arguments.parameters = ranges_of(source, "parameters");
  if (source.has("parameter_gradients")) {
    for (const JsonPlace& target : source.key("parameter_gradients").elements()) {
      target.expect_keys({"parameter", "range", "accumulate"});
      arguments.parameter_gradients.push_back({range_of(target.key("range")),
                                               target.key("accumulate").truth(),
                                               index_or_none(target, "parameter")});
    }
  }
  arguments.zeroed = ranges_of(source, "zeroed");
  arguments.value = index_or_none(source, "value");
  if (source.has("part")) arguments.part = range_of(source.key("part"));
  arguments.pieces = list("pieces");
  if (source.has("stand_ins")) {
    for (const JsonPlace& pair : source.key("stand_ins").elements()) {
      const std::vector<JsonPlace> ids = pair.elements();
      if (ids.size() != 2) pair.refuse("is not [buffer, buffer on the host]");
      arguments.stand_ins.push_back({index_of(ids[0]), index_of(ids[1])});
    }
  }
  arguments.gradient = truth_or_no(source, "gradient");
  arguments.drops_loss = truth_or_no(source, "drops_loss");
  arguments.staging = index_or_none(source, "staging");
  return arguments;
}

ordered_json instruction_to_json(const Instruction& instruction) {
  ordered_json result = {{"operation", to_string(instruction.operation)},
                         {"node", instruction.node},
                         {"node_index", instruction.node_index},
                         {"micro_batch", instruction.micro_batch},
                         {"recompute", instruction.recompute},
                         {"reads", instruction.reads},
                         {"writes", instruction.writes},
                         {"frees", instruction.frees},
                         {"transient_bytes", instruction.transient_bytes},
                         {"seconds", instruction.seconds},
                         {"lane", to_string(instruction.lane)}};
  if (instruction.bucket >= 0) result["bucket"] = instruction.bucket;
  if (instruction.issue_seconds > 0) result["issue_seconds"] = instruction.issue_seconds;
  if (!instruction.after.empty()) result["after"] = instruction.after;
  if (instruction.channel) {
    const Channel& channel = *instruction.channel;
    result["channel"] = {{"kind", channel.kind},       {"group", to_string(channel.group)},
                         {"members", channel.members}, {"peer", channel.peer},
                         {"tag", channel.tag},         {"bytes", channel.bytes}};
    if (channel.wire) result["channel"]["wire"] = number_type_name(*channel.wire);
  }
  if (instruction.completes >= 0) result["completes"] = instruction.completes;
  if (instruction.of_previous_step) result["of_previous_step"] = true;
  result["arguments"] = arguments_to_json(instruction.arguments);
  return result;
}

Channel channel_from_json(const JsonPlace& source) {
  source.expect_keys({"kind", "group", "members", "bytes"}, {"peer", "tag", "wire"});
  std::optional<NumberType> wire;
  if (source.has("wire")) {
    wire = NumberType::BFloat16;
    if (source.key("wire").text() != number_type_name(*wire))
      source.key("wire").refuse("is not bfloat16; leave it out of what travels as it is kept");
  }
  return {source.key("kind").text(),
          enumeration_from<GroupAxis, group_axis_count>(source.key("group")),
          source.key("members").indices(),
          index_or_none(source, "peer"),
          source.has("tag") ? index_of(source.key("tag")) : 0,
          bytes_of(source.key("bytes")),
          wire};
}

Instruction instruction_from_json(const JsonPlace& source) {
  source.expect_keys(
      {"operation", "node", "reads", "writes", "frees", "transient_bytes", "lane"},
      {"node_index", "bucket", "micro_batch", "recompute", "seconds", "issue_seconds", "after",
       "channel", "completes", "of_previous_step", "arguments", "measured_seconds",
       "measured_live_bytes", "measured_peak_bytes"});
  Instruction instruction;
  instruction.operation = enumeration_from<Operation, operation_count>(source.key("operation"));
  instruction.node = source.key("node").text();
  instruction.node_index = index_or_none(source, "node_index");
  instruction.bucket = index_or_none(source, "bucket");
  instruction.micro_batch = index_or_none(source, "micro_batch");
  instruction.recompute = truth_or_no(source, "recompute");
  instruction.reads = source.key("reads").indices();
  instruction.writes = source.key("writes").indices();
  instruction.frees = source.key("frees").indices();
  instruction.transient_bytes = bytes_of(source.key("transient_bytes"));
  if (source.has("seconds")) instruction.seconds = seconds_of(source.key("seconds"));
  if (source.has("issue_seconds"))
    instruction.issue_seconds = seconds_of(source.key("issue_seconds"));
  instruction.lane = lane_of(source.key("lane"));
  if (source.has("after")) instruction.after = source.key("after").indices();
  if (source.has("channel")) instruction.channel = channel_from_json(source.key("channel"));
  instruction.completes = index_or_none(source, "completes");
  instruction.of_previous_step = truth_or_no(source, "of_previous_step");
  if (source.has("arguments")) instruction.arguments = arguments_from_json(source.key("arguments"));
  return instruction;
}

Buffer buffer_from_json(const JsonPlace& source) {
  source.expect_keys({"name", "kind", "bytes"}, {"id", "elements", "element_bytes", "tier",
                                                 "live_at_start", "live_at_end", "carried"});
  Buffer buffer;
  buffer.name = source.key("name").text();
  buffer.kind = enumeration_from<BufferKind, buffer_kinds>(source.key("kind"));
  buffer.bytes = bytes_of(source.key("bytes"));
  if (source.has("elements")) {
    buffer.elements = bytes_of(source.key("elements"));
    buffer.element_bytes = source.key("element_bytes").integer(1, 64);
  }
  if (source.has("tier")) buffer.tier = enumeration_from<Tier, tier_count>(source.key("tier"));
  buffer.live_at_start = truth_or_no(source, "live_at_start");
  buffer.live_at_end = truth_or_no(source, "live_at_end");
  buffer.carried = truth_or_no(source, "carried");
  return buffer;
}

// Of tiers that count otherwise than in cpu_allocation_granularity.
void read_granularity(const JsonPlace& source, Program& program) {
  source.expect_keys({}, {"device", "host", "disk"});
  for (int t = 0; t < tier_count; ++t) {
    const auto tier = static_cast<Tier>(t);
    if (!source.has(to_string(tier))) continue;
    program.tier(tier).granularity = source.key(to_string(tier)).integer(1, most_granularity_bytes);
  }
}

ordered_json body_to_json(const Program& program) {
  ordered_json buffers = ordered_json::array();
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    ordered_json entry = {{"id", id},
                          {"name", buffer.name},
                          {"kind", to_string(buffer.kind)},
                          {"bytes", buffer.bytes}};
    if (buffer.elements > 0) {
      entry["elements"] = buffer.elements;
      entry["element_bytes"] = buffer.element_bytes;
    }
    entry["tier"] = to_string(buffer.tier);
    entry["live_at_start"] = buffer.live_at_start;
    entry["live_at_end"] = buffer.live_at_end;
    if (buffer.carried) entry["carried"] = true;
    buffers.push_back(std::move(entry));
  }
  ordered_json pieces = ordered_json::array();
  for (const auto& piece : program.pieces) pieces.push_back(to_json(piece));
  ordered_json instructions = ordered_json::array();
  for (const auto& instruction : program.instructions)
    instructions.push_back(instruction_to_json(instruction));
  ordered_json buckets = ordered_json::array();
  for (const auto& bucket : program.buckets) buckets.push_back(to_json(bucket));
  ordered_json result = {{"micro_batches", program.micro_batches},
                         {"buckets", std::move(buckets)},
                         {"buffers", std::move(buffers)},
                         {"pieces", std::move(pieces)},
                         {"instructions", std::move(instructions)}};
  for (const StateBlocks& blocks : program.state_blocks)
    result["state_blocks"].push_back(to_json(blocks));
  for (const TensorSums& sums : program.tensor_sums) result["tensor_sums"].push_back(to_json(sums));
  return result;
}

}  // namespace

ordered_json to_json(const Program& program, const std::vector<int>& ranks,
                     const std::vector<Measurement>& measured) {
  ordered_json result = {{"format", "garonne.program"},
                         {"version", 2},
                         {"name", program.name},
                         {"model", program.model},
                         {"rank", program.rank},
                         {"ranks", ranks},
                         {"coordinates",
                          {{"data", program.coordinates.data},
                           {"pipeline", program.coordinates.pipeline},
                           {"tensor", program.coordinates.tensor}}},
                         {"budget_bytes", program.budget_bytes()},
                         {"host_budget_bytes", program.tier(Tier::Host).budget_bytes},
                         {"disk_budget_bytes", program.tier(Tier::Disk).budget_bytes},
                         {"peak_bytes", program.peak_bytes},
                         {"seconds", program.seconds}};
  for (int t = 0; t < tier_count; ++t) {
    const auto tier = static_cast<Tier>(t);
    const std::int64_t granularity = program.tier(tier).granularity;
    if (granularity != MemoryTier().granularity)
      result["granularity"][std::string(to_string(tier))] = granularity;
  }
  result.update(body_to_json(program));
  expect(measured.empty() || measured.size() == program.instructions.size(),
         "one measurement an instruction");
  for (std::size_t i = 0; i < measured.size(); ++i) {
    auto& instruction = result["instructions"][i];
    instruction["measured_seconds"] = measured[i].seconds;
    instruction["measured_live_bytes"] = measured[i].live_bytes;
    instruction["measured_peak_bytes"] = measured[i].peak_bytes;
  }
  return result;
}

Program program_from_json(const json& source, const std::string& path, FileOwner owner) {
  const JsonFile file(source, path, owner);
  const JsonPlace root = file.root();
  root.expect_format("garonne.program", 2);
  root.expect_keys({"format", "version", "rank", "coordinates", "budget_bytes", "peak_bytes",
                    "seconds", "micro_batches", "buckets", "buffers", "pieces", "instructions"},
                   {"name", "model", "ranks", "host_budget_bytes", "disk_budget_bytes",
                    "granularity", "state_blocks", "tensor_sums"});
  Program program;
  if (root.has("name")) program.name = root.key("name").text();
  if (root.has("model")) program.model = root.key("model").text();
  program.rank = index_of(root.key("rank"));
  const JsonPlace coordinates = root.key("coordinates");
  coordinates.expect_keys({"data", "pipeline", "tensor"});
  program.coordinates = {index_of(coordinates.key("data")), index_of(coordinates.key("pipeline")),
                         index_of(coordinates.key("tensor"))};
  program.tier(Tier::Device).budget_bytes = root.key("budget_bytes").integer(0);
  if (root.has("host_budget_bytes"))
    program.tier(Tier::Host).budget_bytes = root.key("host_budget_bytes").integer(0);
  if (root.has("disk_budget_bytes"))
    program.tier(Tier::Disk).budget_bytes = root.key("disk_budget_bytes").integer(0);
  if (root.has("granularity")) read_granularity(root.key("granularity"), program);
  program.peak_bytes = root.key("peak_bytes").integer(0);
  program.seconds = seconds_of(root.key("seconds"));
  program.micro_batches = static_cast<int>(root.key("micro_batches").integer(1, INT32_MAX));
  std::int64_t buffer_bytes = 0;
  for (const JsonPlace& buffer : root.key("buffers").elements()) {
    program.buffers.push_back(buffer_from_json(buffer));
    add_bytes(program.buffers.back().bytes, buffer_bytes, buffer.key("bytes"));
  }
  for (const JsonPlace& bucket : root.key("buckets").elements())
    program.buckets.push_back(bucket_from_json(bucket));
  for (const JsonPlace& piece : root.key("pieces").elements())
    program.pieces.push_back(piece_from_json(piece));
  if (root.has("state_blocks")) {
    for (const JsonPlace& blocks : root.key("state_blocks").elements())
      program.state_blocks.push_back(state_blocks_from_json(blocks));
  }
  if (root.has("tensor_sums")) {
    for (const JsonPlace& sums : root.key("tensor_sums").elements())
      program.tensor_sums.push_back(tensor_sums_from_json(sums));
  }
  std::int64_t message_bytes = 0;
  for (const JsonPlace& instruction : root.key("instructions").elements()) {
    program.instructions.push_back(instruction_from_json(instruction));
    if (const auto& channel = program.instructions.back().channel)
      add_bytes(channel->bytes, message_bytes, instruction.key("channel").key("bytes"));
  }
  return program;
}

std::vector<Measurement> measurements_from_json(const json& source, const std::string& path,
                                                FileOwner owner) {
  const JsonFile file(source, path, owner);
  const std::vector<JsonPlace> instructions = file.root().key("instructions").elements();
  std::vector<Measurement> measured;
  for (const JsonPlace& instruction : instructions) {
    if (!instruction.has("measured_seconds")) continue;
    measured.push_back({seconds_of(instruction.key("measured_seconds")),
                        bytes_of(instruction.key("measured_live_bytes")),
                        bytes_of(instruction.key("measured_peak_bytes"))});
  }
  if (!measured.empty() && measured.size() != instructions.size())
    file.refuse("measured_seconds", "", "is missing in some instructions");
  return measured;
}

std::string program_hash(const Program& program) {
  return hash_text(body_to_json(program).dump());
}

}  // namespace garonne::plan
