// The file format "garonne.program", version 1.
#include <fmt/format.h>

#include <string_view>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// What one number of a file may be, so that sums over a file are numbers too.
constexpr std::int64_t most_file_bytes = std::int64_t{1} << 48;
constexpr double most_file_seconds = 1e12;

ordered_json arguments_to_json(const Arguments& arguments) {
  ordered_json result = ordered_json::object();
  const auto list = [&](const char* name, const std::vector<int>& ids) {
    if (!ids.empty()) result[name] = ids;
  };
  const auto one = [&](const char* name, int id) {
    if (id >= 0) result[name] = id;
  };
  list("inputs", arguments.inputs);
  one("output", arguments.output);
  list("record", arguments.record);
  one("output_gradient", arguments.output_gradient);
  list("input_gradients", arguments.input_gradients);
  list("accumulated", arguments.accumulated);
  one("pinned_output", arguments.pinned_output);
  list("parameters", arguments.parameters);
  for (const auto& target : arguments.parameter_gradients) {
    result["parameter_gradients"].push_back({{"buffer", target.buffer},
                                             {"offset_elements", target.offset_elements},
                                             {"accumulate", target.accumulate}});
  }
  one("staging", arguments.staging);
  return result;
}

int index_of(const JsonPlace& place) {
  return static_cast<int>(place.integer(0, INT32_MAX));
}

// An index, or -1 where there is none.
int index_or_none(const JsonPlace& place, std::string_view key) {
  return place.has(key) ? static_cast<int>(place.key(key).integer(-1, INT32_MAX)) : -1;
}

std::int64_t bytes_of(const JsonPlace& place) {
  return place.integer(0, most_file_bytes);
}

double seconds_of(const JsonPlace& place) {
  return place.number(0, most_file_seconds);
}

bool truth_or_no(const JsonPlace& place, std::string_view key) {
  return place.has(key) && place.key(key).truth();
}

Arguments arguments_from_json(const JsonPlace& source) {
  source.expect_keys(
      {}, {"inputs", "output", "record", "output_gradient", "input_gradients", "accumulated",
           "pinned_output", "parameters", "parameter_gradients", "staging"});
  // An input gradient that nobody wants is -1.
  const auto list = [&](std::string_view key) {
    std::vector<int> ids;
    if (!source.has(key)) return ids;
    for (const JsonPlace& id : source.key(key).elements())
      ids.push_back(static_cast<int>(id.integer(-1, INT32_MAX)));
    return ids;
  };
  Arguments arguments;
  arguments.inputs = list("inputs");
  arguments.output = index_or_none(source, "output");
  arguments.record = list("record");
  arguments.output_gradient = index_or_none(source, "output_gradient");
  arguments.input_gradients = list("input_gradients");
  arguments.accumulated = list("accumulated");
  arguments.pinned_output = index_or_none(source, "pinned_output");
  arguments.parameters = list("parameters");
  if (source.has("parameter_gradients")) {
    for (const JsonPlace& target : source.key("parameter_gradients").elements()) {
      target.expect_keys({"buffer", "offset_elements", "accumulate"});
      arguments.parameter_gradients.push_back({index_of(target.key("buffer")),
                                               bytes_of(target.key("offset_elements")),
                                               target.key("accumulate").truth()});
    }
  }
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
                         {"seconds", instruction.seconds}};
  if (instruction.channel) {
    const Channel& channel = *instruction.channel;
    result["channel"] = {{"kind", channel.kind},        {"group", channel.group},
                         {"members", channel.members},  {"peer", channel.peer},
                         {"tag", channel.tag},          {"bytes", channel.bytes},
                         {"blocking", channel.blocking}};
  }
  if (instruction.completes >= 0) result["completes"] = instruction.completes;
  result["arguments"] = arguments_to_json(instruction.arguments);
  return result;
}

template <typename Enumeration, int Count>
Enumeration enumeration_from(const JsonPlace& place) {
  const std::string text = place.text();
  for (int i = 0; i < Count; ++i) {
    if (to_string(static_cast<Enumeration>(i)) == text) return static_cast<Enumeration>(i);
  }
  place.refuse("is not known to this version");
}

Channel channel_from_json(const JsonPlace& source) {
  source.expect_keys({"kind", "group", "members", "bytes"}, {"peer", "tag", "blocking"});
  return {source.key("kind").text(),
          source.key("group").text(),
          source.key("members").indices(),
          index_or_none(source, "peer"),
          source.has("tag") ? index_of(source.key("tag")) : 0,
          bytes_of(source.key("bytes")),
          truth_or_no(source, "blocking")};
}

Instruction instruction_from_json(const JsonPlace& source) {
  source.expect_keys(
      {"operation", "node", "reads", "writes", "frees", "transient_bytes"},
      {"node_index", "micro_batch", "recompute", "seconds", "channel", "completes", "arguments",
       "measured_seconds", "measured_live_bytes", "measured_peak_bytes"});
  Instruction instruction;
  instruction.operation = enumeration_from<Operation, operation_count>(source.key("operation"));
  instruction.node = source.key("node").text();
  instruction.node_index = index_or_none(source, "node_index");
  instruction.micro_batch = index_or_none(source, "micro_batch");
  instruction.recompute = truth_or_no(source, "recompute");
  instruction.reads = source.key("reads").indices();
  instruction.writes = source.key("writes").indices();
  instruction.frees = source.key("frees").indices();
  instruction.transient_bytes = bytes_of(source.key("transient_bytes"));
  if (source.has("seconds")) instruction.seconds = seconds_of(source.key("seconds"));
  if (source.has("channel")) instruction.channel = channel_from_json(source.key("channel"));
  instruction.completes = index_or_none(source, "completes");
  if (source.has("arguments")) instruction.arguments = arguments_from_json(source.key("arguments"));
  return instruction;
}

Buffer buffer_from_json(const JsonPlace& source) {
  source.expect_keys({"name", "kind", "bytes"}, {"id", "tier", "live_at_start", "live_at_end"});
  Buffer buffer;
  buffer.name = source.key("name").text();
  buffer.kind = enumeration_from<BufferKind, buffer_kinds>(source.key("kind"));
  buffer.bytes = bytes_of(source.key("bytes"));
  const std::string tier = source.has("tier") ? source.key("tier").text() : "device";
  if (tier != "device" && tier != "host") source.key("tier").refuse("is neither device nor host");
  buffer.tier = tier == "host" ? Tier::Host : Tier::Device;
  buffer.live_at_start = truth_or_no(source, "live_at_start");
  buffer.live_at_end = truth_or_no(source, "live_at_end");
  return buffer;
}

ordered_json body_to_json(const Program& program) {
  ordered_json buffers = ordered_json::array();
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    buffers.push_back({{"id", id},
                       {"name", buffer.name},
                       {"kind", to_string(buffer.kind)},
                       {"bytes", buffer.bytes},
                       {"tier", buffer.tier == Tier::Device ? "device" : "host"},
                       {"live_at_start", buffer.live_at_start},
                       {"live_at_end", buffer.live_at_end}});
  }
  ordered_json instructions = ordered_json::array();
  for (const auto& instruction : program.instructions)
    instructions.push_back(instruction_to_json(instruction));
  return {{"buffers", std::move(buffers)}, {"instructions", std::move(instructions)}};
}

}  // namespace

ordered_json to_json(const Program& program, const std::vector<int>& ranks,
                     const std::vector<Measurement>& measured) {
  ordered_json result = {{"format", "garonne.program"},
                         {"version", 1},
                         {"name", program.name},
                         {"rank", program.rank},
                         {"ranks", ranks},
                         {"coordinates",
                          {{"data", program.coordinates.data},
                           {"pipeline", program.coordinates.pipeline},
                           {"tensor", program.coordinates.tensor}}},
                         {"budget_bytes", program.budget_bytes},
                         {"host_budget_bytes", program.host_budget_bytes},
                         {"peak_bytes", program.peak_bytes},
                         {"seconds", program.seconds},
                         {"micro_batches", program.micro_batches}};
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
  root.expect_format("garonne.program", 1);
  root.expect_keys({"format", "version", "rank", "coordinates", "budget_bytes", "peak_bytes",
                    "seconds", "buffers", "instructions"},
                   {"name", "ranks", "host_budget_bytes", "micro_batches"});
  Program program;
  if (root.has("name")) program.name = root.key("name").text();
  program.rank = index_of(root.key("rank"));
  const JsonPlace coordinates = root.key("coordinates");
  coordinates.expect_keys({"data", "pipeline", "tensor"});
  program.coordinates = {index_of(coordinates.key("data")), index_of(coordinates.key("pipeline")),
                         index_of(coordinates.key("tensor"))};
  program.budget_bytes = root.key("budget_bytes").integer(0);
  if (root.has("host_budget_bytes"))
    program.host_budget_bytes = root.key("host_budget_bytes").integer(0);
  program.peak_bytes = root.key("peak_bytes").integer(0);
  program.seconds = seconds_of(root.key("seconds"));
  if (root.has("micro_batches"))
    program.micro_batches = static_cast<int>(root.key("micro_batches").integer(1, INT32_MAX));
  for (const JsonPlace& buffer : root.key("buffers").elements())
    program.buffers.push_back(buffer_from_json(buffer));
  for (const JsonPlace& instruction : root.key("instructions").elements())
    program.instructions.push_back(instruction_from_json(instruction));
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
