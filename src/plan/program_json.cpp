// The file format "garonne.program", version 1.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "plan/program.hpp"

namespace garonne::plan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

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

// Refuses what this version does not know instead of dropping it.
void expect_known_keys(const json& object, std::initializer_list<const char*> known,
                       const char* where) {
  // Throws the parser's own error for what is no object.
  object.get_ref<const json::object_t&>();
  for (const auto& [key, value] : object.items()) {
    const bool found =
        std::any_of(known.begin(), known.end(), [&](const char* name) { return key == name; });
    if (!found)
      throw ConfigError(key, "", std::string("is no key of ") + where + " in this version");
  }
}

Arguments arguments_from_json(const json& source) {
  expect_known_keys(
      source,
      {"inputs", "output", "record", "output_gradient", "input_gradients", "accumulated",
       "pinned_output", "parameters", "parameter_gradients", "staging"},
      "arguments");
  Arguments arguments;
  arguments.inputs = source.value("inputs", std::vector<int>());
  arguments.output = source.value("output", -1);
  arguments.record = source.value("record", std::vector<int>());
  arguments.output_gradient = source.value("output_gradient", -1);
  arguments.input_gradients = source.value("input_gradients", std::vector<int>());
  arguments.accumulated = source.value("accumulated", std::vector<int>());
  arguments.pinned_output = source.value("pinned_output", -1);
  arguments.parameters = source.value("parameters", std::vector<int>());
  for (const auto& target : source.value("parameter_gradients", json::array())) {
    arguments.parameter_gradients.push_back({target.at("buffer").get<int>(),
                                             target.at("offset_elements").get<std::int64_t>(),
                                             target.at("accumulate").get<bool>()});
  }
  arguments.staging = source.value("staging", -1);
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
Enumeration enumeration_from(const std::string& text, const char* what) {
  for (int i = 0; i < Count; ++i) {
    if (to_string(static_cast<Enumeration>(i)) == text) return static_cast<Enumeration>(i);
  }
  throw ConfigError(what, text, "is not known to this version");
}

Instruction instruction_from_json(const json& source) {
  expect_known_keys(source,
                    {"operation", "node", "node_index", "micro_batch", "recompute", "reads",
                     "writes", "frees", "transient_bytes", "seconds", "channel", "completes",
                     "arguments", "measured_seconds", "measured_live_bytes", "measured_peak_bytes"},
                    "an instruction");
  Instruction instruction;
  instruction.operation =
      enumeration_from<Operation, operation_count>(source.at("operation"), "operation");
  instruction.node = source.at("node").get<std::string>();
  instruction.node_index = source.value("node_index", -1);
  instruction.micro_batch = source.value("micro_batch", -1);
  instruction.recompute = source.value("recompute", false);
  instruction.reads = source.at("reads").get<std::vector<int>>();
  instruction.writes = source.at("writes").get<std::vector<int>>();
  instruction.frees = source.at("frees").get<std::vector<int>>();
  instruction.transient_bytes = source.at("transient_bytes").get<std::int64_t>();
  instruction.seconds = source.value("seconds", 0.0);
  if (source.contains("channel")) {
    const json& channel = source.at("channel");
    instruction.channel = Channel{channel.at("kind").get<std::string>(),
                                  channel.at("group").get<std::string>(),
                                  channel.at("members").get<std::vector<int>>(),
                                  channel.value("peer", -1),
                                  channel.value("tag", 0),
                                  channel.at("bytes").get<std::int64_t>(),
                                  channel.value("blocking", false)};
  }
  instruction.completes = source.value("completes", -1);
  if (source.contains("arguments"))
    instruction.arguments = arguments_from_json(source.at("arguments"));
  return instruction;
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

Program program_from_json(const json& source, const std::string& path) {
  try {
    if (source.at("format") != "garonne.program")
      throw ConfigError(path, "", "is no garonne.program file");
    if (source.at("version") != 1) {
      throw ConfigError(path + ": version", source.at("version").dump(),
                        "this build reads version 1");
    }
    expect_known_keys(
        source,
        {"format", "version", "name", "rank", "ranks", "coordinates", "budget_bytes",
         "host_budget_bytes", "peak_bytes", "seconds", "micro_batches", "buffers", "instructions"},
        "a garonne.program");
    Program program;
    program.name = source.value("name", "");
    program.rank = source.at("rank").get<int>();
    program.coordinates = {source.at("coordinates").at("data").get<int>(),
                           source.at("coordinates").at("pipeline").get<int>(),
                           source.at("coordinates").at("tensor").get<int>()};
    program.budget_bytes = source.at("budget_bytes").get<std::int64_t>();
    program.host_budget_bytes = source.value("host_budget_bytes", std::int64_t{0});
    program.peak_bytes = source.at("peak_bytes").get<std::int64_t>();
    program.seconds = source.at("seconds").get<double>();
    program.micro_batches = source.value("micro_batches", 1);
    for (const auto& item : source.at("buffers")) {
      expect_known_keys(item,
                        {"id", "name", "kind", "bytes", "tier", "live_at_start", "live_at_end"},
                        "a buffer");
      Buffer buffer;
      buffer.name = item.at("name").get<std::string>();
      buffer.kind = enumeration_from<BufferKind, buffer_kinds>(item.at("kind"), "kind");
      buffer.bytes = item.at("bytes").get<std::int64_t>();
      const auto tier = item.value("tier", std::string("device"));
      if (tier != "device" && tier != "host")
        throw ConfigError(path + ": tier", tier, "is device or host");
      buffer.tier = tier == "host" ? Tier::Host : Tier::Device;
      buffer.live_at_start = item.value("live_at_start", false);
      buffer.live_at_end = item.value("live_at_end", false);
      program.buffers.push_back(std::move(buffer));
    }
    for (const auto& item : source.at("instructions"))
      program.instructions.push_back(instruction_from_json(item));
    return program;
  } catch (const json::exception& error) {
    throw ConfigError(path, "", fmt::format("is not understood: {}", error.what()));
  }
}

std::vector<Measurement> measurements_from_json(const json& source, const std::string& path) {
  try {
    const json& instructions = source.at("instructions");
    std::vector<Measurement> measured;
    for (const auto& instruction : instructions) {
      if (!instruction.contains("measured_seconds")) continue;
      measured.push_back({instruction.at("measured_seconds").get<double>(),
                          instruction.at("measured_live_bytes").get<std::int64_t>(),
                          instruction.at("measured_peak_bytes").get<std::int64_t>()});
      const Measurement& last = measured.back();
      if (!(last.seconds >= 0) || last.live_bytes < 0 || last.peak_bytes < 0)
        throw ConfigError(path + ": instructions", instruction.dump(),
                          "measured less than nothing");
    }
    if (!measured.empty() && measured.size() != instructions.size())
      throw ConfigError(path + ": measured_seconds", "", "is missing in some instructions");
    return measured;
  } catch (const json::exception& error) {
    throw ConfigError(path, "", fmt::format("is not understood: {}", error.what()));
  }
}

std::string program_hash(const Program& program) {
  return hash_text(body_to_json(program).dump());
}

}  // namespace garonne::plan
