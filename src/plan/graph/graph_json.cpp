#include "plan/graph/graph_json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/json_input.hpp"
#include "plan/graph/graph_replay.hpp"
#include "plan/model/file_seconds.hpp"

namespace garonne::plan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t largest_bytes = std::int64_t{1} << 48;
constexpr std::int64_t largest_total = std::int64_t{1} << 52;

TaskValue value_from(const JsonPlace& place) {
  place.expect_keys({"name", "bytes"}, {"live_at_start", "live_at_end"});
  TaskValue value;
  value.name = place.key("name").text();
  value.bytes = place.key("bytes").integer();
  if (place.has("live_at_start")) value.live_at_start = place.key("live_at_start").truth();
  if (place.has("live_at_end")) value.live_at_end = place.key("live_at_end").truth();
  return value;
}

Task task_from(const JsonPlace& place) {
  place.expect_keys({"name", "reads", "options"}, {"updates", "once"});
  Task task;
  task.name = place.key("name").text();
  task.reads = place.key("reads").indices();
  if (place.has("updates")) task.updates = place.key("updates").indices();
  if (place.has("once")) task.once = place.key("once").truth();
  for (const JsonPlace& source : place.key("options").elements()) {
    source.expect_keys({"name", "makes", "seconds", "transient_bytes"}, {"reads"});
    task.options.push_back({source.key("name").text(), source.key("makes").indices(),
                            source.key("seconds").number(),
                            source.key("transient_bytes").integer()});
    if (source.has("reads")) task.options.back().reads = source.key("reads").indices();
  }
  return task;
}

class GraphCheck {
 public:
  GraphCheck(const ComputationGraph& graph, const std::string& path)
      : graph_(graph),
        path_(path),
        maker_(graph.values.size(), -1),
        in_first_(graph.values.size(), false),
        touched_(graph.values.size(), -1),
        named_(graph.values.size(), -1) {}

  void run() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      check_bytes(fmt::format("values[{}].bytes", v), graph_.values[v].bytes);
    }
    if (graph_.tasks.empty()) fail("tasks", "", "there is nothing to run");
    for (std::size_t t = 0; t < graph_.tasks.size(); ++t) check_task(static_cast<int>(t));
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const std::string name = fmt::format("values[{}]", v);
      if (maker_[v] < 0 && !graph_.values[v].live_at_start)
        fail(name, graph_.values[v].name, "is made by no task and not live at the start");
      if (maker_[v] >= 0 && graph_.values[v].live_at_end && !in_first_[v])
        fail(name, graph_.values[v].name, "is wanted at the end and no option 0 makes it");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& value,
                         const std::string& reason) const {
    throw ConfigError(path_ + ": " + key, value, reason);
  }

  void check_bytes(const std::string& key, std::int64_t bytes) {
    if (bytes < 0) fail(key, fmt::format("{}", bytes), "is negative");
    if (bytes > largest_bytes) fail(key, fmt::format("{}", bytes), "is more than 2^48");
    total_ += bytes;
    if (total_ > largest_total) fail(key, fmt::format("{}", bytes), "makes more than 2^52 in all");
  }

  void check_index(const std::string& key, int value) const {
    if (value >= 0 && static_cast<std::size_t>(value) < graph_.values.size()) return;
    fail(key, fmt::format("{}", value), fmt::format("there are {} values", graph_.values.size()));
  }

  // `in_first`: option 0 of the task reads it.
  void check_read(const std::string& key, int value, bool in_first) const {
    check_index(key, value);
    const auto v = static_cast<std::size_t>(value);
    if (graph_.values[v].live_at_start) return;
    if (maker_[v] < 0) {
      fail(key, fmt::format("{}", value),
           graph_.values[v].name + " is read before the task that makes it: no topological order");
    }
    if (in_first && !in_first_[v]) {
      fail(key, fmt::format("{}", value),
           graph_.values[v].name + " is read by option 0 and no option 0 makes it");
    }
  }

  void check_task(int t) {
    const Task& task = graph_.tasks[static_cast<std::size_t>(t)];
    const std::string name = fmt::format("tasks[{}]", t);
    for (std::size_t r = 0; r < task.reads.size(); ++r) {
      check_read(fmt::format("{}.reads[{}]", name, r), task.reads[r], true);
      check_new(fmt::format("{}.reads[{}]", name, r), touched_, t, task.reads[r]);
    }
    for (std::size_t u = 0; u < task.updates.size(); ++u) {
      const std::string key = fmt::format("{}.updates[{}]", name, u);
      const int value = task.updates[u];
      check_read(key, value, true);
      check_new(key, touched_, t, value);
      if (!task.once) fail(key, fmt::format("{}", value), "only a task that is once may update");
      const int maker = maker_[static_cast<std::size_t>(value)];
      if (maker >= 0 && !graph_.tasks[static_cast<std::size_t>(maker)].once) {
        fail(key, fmt::format("{}", value), "what a task makes that may run again is not updated");
      }
    }
    if (task.options.empty()) fail(name + ".options", "", "a task has at least one");
    for (std::size_t o = 0; o < task.options.size(); ++o) {
      check_option(fmt::format("{}.options[{}]", name, o), t, static_cast<int>(o));
    }
  }

  void check_option(const std::string& name, int t, int o) {
    const Task& task = graph_.tasks[static_cast<std::size_t>(t)];
    const TaskOption& option = task.options[static_cast<std::size_t>(o)];
    check_bytes(name + ".transient_bytes", option.transient_bytes);
    if (!std::isfinite(option.seconds) || option.seconds < 0 ||
        option.seconds > most_file_seconds) {
      fail(name + ".seconds", fmt::format("{}", option.seconds), "is no number from 0 to 1e12");
    }
    ++options_;
    for (std::size_t r = 0; r < option.reads.size(); ++r) {
      const std::string key = fmt::format("{}.reads[{}]", name, r);
      const int value = option.reads[r];
      check_read(key, value, o == 0);
      if (!task.once)
        fail(key, fmt::format("{}", value), "only options of a task that is once may differ in it");
      const auto v = static_cast<std::size_t>(value);
      if (touched_[v] == t || maker_[v] == t) fail_twice(key, value);
      check_new(key, named_, options_, value);
    }
    for (std::size_t m = 0; m < option.makes.size(); ++m) {
      const std::string key = fmt::format("{}.makes[{}]", name, m);
      const int value = option.makes[m];
      check_index(key, value);
      if (touched_[static_cast<std::size_t>(value)] == t) fail_twice(key, value);
      check_new(key, named_, options_, value);
      int& maker = maker_[static_cast<std::size_t>(value)];
      if (maker == t) continue;
      if (graph_.values[static_cast<std::size_t>(value)].live_at_start) {
        fail(key, fmt::format("{}", value), "is live at the start, so no task makes it");
      }
      if (maker >= 0) fail(key, fmt::format("{}", value), "is made by two tasks");
      maker = t;
      in_first_[static_cast<std::size_t>(value)] = o == 0;
    }
  }

  // Copies of a value have one event a step, so a task names it once. `last` has by value who named
  // it last.
  void check_new(const std::string& key, std::vector<int>& last, int who, int value) const {
    if (last[static_cast<std::size_t>(value)] == who) fail_twice(key, value);
    last[static_cast<std::size_t>(value)] = who;
  }

  [[noreturn]] void fail_twice(const std::string& key, int value) const {
    fail(key, fmt::format("{}", value), "is named twice by one task");
  }

  const ComputationGraph& graph_;
  const std::string& path_;
  std::vector<int> maker_;
  std::vector<bool> in_first_;  // by value: option 0 of its maker makes it
  std::vector<int> touched_;    // by value: the last task that reads or updates it
  std::vector<int> named_;      // by value: the last option, all counted, that makes or reads it
  int options_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace

void check_graph(const ComputationGraph& graph, const std::string& path) {
  GraphCheck(graph, path).run();
}

ordered_json to_json(const ComputationGraph& graph) {
  ordered_json values = ordered_json::array();
  for (const TaskValue& value : graph.values) {
    values.push_back({{"name", value.name},
                      {"bytes", value.bytes},
                      {"live_at_start", value.live_at_start},
                      {"live_at_end", value.live_at_end}});
  }
  ordered_json tasks = ordered_json::array();
  for (const Task& task : graph.tasks) {
    ordered_json options = ordered_json::array();
    for (const TaskOption& option : task.options) {
      options.push_back({{"name", option.name},
                         {"makes", option.makes},
                         {"seconds", option.seconds},
                         {"transient_bytes", option.transient_bytes}});
      if (!option.reads.empty()) options.back()["reads"] = option.reads;
    }
    tasks.push_back({{"name", task.name},
                     {"once", task.once},
                     {"reads", task.reads},
                     {"updates", task.updates},
                     {"options", std::move(options)}});
  }
  return {{"format", "garonne.graph"},
          {"version", 1},
          {"values", std::move(values)},
          {"tasks", std::move(tasks)}};
}

ComputationGraph computation_graph_from_json(const json& source, const std::string& path) {
  const JsonFile file(source, path);
  const JsonPlace root = file.root();
  root.expect_format("garonne.graph", 1);
  root.expect_keys({"format", "version", "values", "tasks"});
  ComputationGraph graph;
  for (const JsonPlace& value : root.key("values").elements())
    graph.values.push_back(value_from(value));
  for (const JsonPlace& task : root.key("tasks").elements()) graph.tasks.push_back(task_from(task));
  check_graph(graph, path);
  return graph;
}

ordered_json to_json(const ComputationGraph& graph, const std::string& algorithm,
                     std::int64_t budget_bytes, const GraphAnswer& answer) {
  expect(answer.schedule.has_value(), "an answer to be written has a schedule");
  const ScheduleOutcome keep_all = replay_schedule(graph, keep_all_schedule(graph));
  ordered_json steps = ordered_json::array();
  for (const TaskStep& step : *answer.schedule) {
    steps.push_back(ordered_json::array({step.task, step.option}));
  }
  ordered_json result = {
      {"format", "garonne.graph-schedule"},
      {"version", 1},
      {"algorithm", algorithm},
      {"budget_bytes", budget_bytes},
      {"peak_bytes", answer.peak_bytes},
      {"seconds", answer.seconds},
      {"lower_bound_seconds", answer.lower_bound_seconds},
      {"class_bound_seconds", nullptr},
      {"proved", answer.proved},
      {"stopped_by_time_limit", answer.stopped_by_time_limit},
      {"keep_all", {{"seconds", keep_all.seconds}, {"peak_bytes", keep_all.peak_bytes}}},
      {"minimum_budget_bytes", answer.minimum_bytes},
      {"steps", std::move(steps)}};
  if (answer.class_bound_seconds) result["class_bound_seconds"] = *answer.class_bound_seconds;
  return result;
}

}  // namespace garonne::plan
