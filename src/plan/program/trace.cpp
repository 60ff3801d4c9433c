#include "plan/program/trace.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/json_output.hpp"
#include "base/lane.hpp"

namespace garonne::plan {
namespace {

using nlohmann::ordered_json;

constexpr int thread_of_steps = 0;
constexpr int thread_of_compute = 1;
constexpr double microseconds = 1e6;  // of a second: what the format counts in

class RankTrace {
 public:
  RankTrace(const Program& program, const std::string& host) : program_(program) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const int begun = program.instructions[i].completes;
      if (begun >= 0) waits_[static_cast<std::size_t>(begun)] = i;
    }
    const Coordinates& at = program.coordinates;
    name("process_name", thread_of_steps,
         fmt::format("rank {} on {}: data {}, pipeline {}, tensor {}", program.rank, host, at.data,
                     at.pipeline, at.tensor));
    add({{"name", "process_sort_index"},
         {"ph", "M"},
         {"pid", program.rank},
         {"tid", thread_of_steps},
         {"args", {{"sort_index", program.rank}}}});
    name("thread_name", thread_of_steps, "steps");
    name("thread_name", thread_of_compute, std::string(kind_of(Lane::Compute).name));
  }

  void step(const TracedStep& step) {
    const std::size_t count = program_.instructions.size();
    expect(step.measurements.size() == count, "a traced step has a measurement an instruction");
    add({{"name", fmt::format("step {}", step.step)},
         {"cat", "step"},
         {"ph", "X"},
         {"ts", step.begin_seconds * microseconds},
         {"dur", step.seconds * microseconds},
         {"pid", program_.rank},
         {"tid", thread_of_steps}});
    // Where each instruction begins; where the last one ends.
    std::vector<double> begins(count + 1, step.begin_seconds);
    for (std::size_t i = 0; i < count; ++i)
      begins[i + 1] = begins[i] + step.measurements[i].seconds;
    for (std::size_t i = 0; i < count; ++i) {
      instruction(step, i, begins);
      counter(step, i, begins[i + 1]);
    }
  }

  std::string take() { return std::move(text_); }

 private:
  void add(const ordered_json& event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += json_text(event);
  }

  void name(const char* what, int thread, const std::string& text) {
    add({{"name", what},
         {"ph", "M"},
         {"pid", program_.rank},
         {"tid", thread},
         {"args", {{"name", text}}}});
  }

  ordered_json arguments_of(const TracedStep& step, std::size_t i) const {
    const Instruction& instruction = program_.instructions[i];
    ordered_json arguments = {{"step", step.step}, {"instruction", i}};
    if (instruction.micro_batch >= 0) arguments["micro_batch"] = instruction.micro_batch;
    if (instruction.recompute) arguments["recompute"] = true;
    arguments["planned_us"] = instruction.seconds * microseconds;
    if (instruction.channel) {
      arguments["bytes"] = instruction.channel->bytes;
      arguments["group"] = std::string(to_string(instruction.channel->group));
      if (instruction.channel->peer >= 0) arguments["peer"] = instruction.channel->peer;
      arguments["tag"] = instruction.channel->tag;
      if (instruction.channel->wire)
        arguments["wire"] = number_type_name(*instruction.channel->wire);
    } else if (is_copy(instruction.operation) && !instruction.writes.empty()) {
      arguments["bytes"] =
          program_.buffers[static_cast<std::size_t>(instruction.writes.front())].bytes;
    }
    return arguments;
  }

  void instruction(const TracedStep& step, std::size_t i, const std::vector<double>& begins) {
    const Instruction& instruction = program_.instructions[i];
    const std::string what = describe(instruction);
    const std::string category(to_string(instruction.operation));
    const ordered_json arguments = arguments_of(step, i);
    add({{"name", what},
         {"cat", category},
         {"ph", "X"},
         {"ts", begins[i] * microseconds},
         {"dur", (begins[i + 1] - begins[i]) * microseconds},
         {"pid", program_.rank},
         {"tid", thread_of_compute},
         {"args", arguments}});
    if (instruction.lane == Lane::Compute) return;
    // Such work may overlap, which slices of a thread may not.
    const auto waited = waits_.find(i);
    const double end = waited == waits_.end() ? begins.back() : begins[waited->second + 1];
    const std::string lane(kind_of(instruction.lane).name);
    const std::string id = fmt::format("{}.{}.{}", program_.rank, step.step, i);
    ordered_json event = {{"name", what},
                          {"cat", lane},
                          {"ph", "b"},
                          {"id", id},
                          {"ts", begins[i] * microseconds},
                          {"pid", program_.rank},
                          {"tid", thread_of_compute},
                          {"args", arguments}};
    add(event);
    event["ph"] = "e";
    event["ts"] = end * microseconds;
    event.erase("args");
    add(event);
  }

  void counter(const TracedStep& step, std::size_t i, double at) {
    ordered_json bytes = {{std::string(to_string(Tier::Device)), step.measurements[i].live_bytes}};
    for (const auto& [tier, live] : step.live_bytes_below) {
      if (i < live.size()) bytes[std::string(to_string(tier))] = live[i];
    }
    add({{"name", "live bytes"},
         {"ph", "C"},
         {"ts", at * microseconds},
         {"pid", program_.rank},
         {"tid", thread_of_compute},
         {"args", bytes}});
  }

  const Program& program_;
  std::map<std::size_t, std::size_t> waits_;  // by the instruction that is waited for
  std::string text_;
};

}  // namespace

std::string trace_events(const Program& program, const std::string& host,
                         const std::vector<TracedStep>& steps) {
  RankTrace trace(program, host);
  for (const TracedStep& step : steps) trace.step(step);
  return trace.take();
}

std::string trace_file(const std::vector<std::string>& events_of_ranks) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  bool first = true;
  for (const std::string& events : events_of_ranks) {
    if (events.empty()) continue;
    text += (first ? "" : ",\n") + events;
    first = false;
  }
  return text + "\n]}\n";
}

}  // namespace garonne::plan
