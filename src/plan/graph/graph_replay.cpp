#include "plan/graph/graph_replay.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/index.hpp"

namespace garonne::plan {
namespace {

// What happens to a value, step by step: the uses that decide how long each copy of it lives.
struct ValueHistory {
  struct Event {
    int step = 0;
    bool makes = false;
  };
  std::vector<Event> events;
  std::size_t next = 0;
};

class ScheduleReplay {
 public:
  ScheduleReplay(const ComputationGraph& graph, const TaskSchedule& schedule)
      : graph_(graph), schedule_(schedule), history_(graph.values.size()) {}

  ScheduleOutcome run() {
    check_steps();
    write_history();
    live_.assign(graph_.values.size(), false);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].live_at_start && wanted_later(static_cast<int>(v))) {
        begin(static_cast<int>(v));
      }
    }
    outcome_.peak_bytes = live_bytes_;
    for (int i = 0; i < static_cast<int>(schedule_.size()); ++i) step(i);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].live_at_end && !live_[v]) {
        fail(static_cast<int>(schedule_.size()),
             graph_.values[v].name + " is wanted at the end and is not live");
      }
    }
    return std::move(outcome_);
  }

 private:
  [[noreturn]] void fail(int step, const std::string& reason) const {
    throw ScheduleError(step, reason);
  }

  void check_steps() const {
    std::vector<bool> ran(graph_.tasks.size(), false);
    int last_once = -1;
    for (int i = 0; i < static_cast<int>(schedule_.size()); ++i) {
      const TaskStep& step = schedule_[as_index(i)];
      if (step.task < 0 || as_index(step.task) >= graph_.tasks.size()) {
        fail(i, fmt::format("there is no task {}", step.task));
      }
      const Task& task = graph_.tasks[as_index(step.task)];
      if (step.option < 0 || as_index(step.option) >= task.options.size()) {
        fail(i, fmt::format("{} has no option {}", task.name, step.option));
      }
      if (task.once) {
        if (ran[as_index(step.task)]) fail(i, task.name + " may run only once");
        if (step.task < last_once) {
          fail(i, fmt::format("{} runs after {}, which comes behind it in the list", task.name,
                              graph_.tasks[as_index(last_once)].name));
        }
        last_once = step.task;
      }
      ran[as_index(step.task)] = true;
    }
    const auto missing = std::find(ran.begin(), ran.end(), false);
    if (missing != ran.end()) {
      fail(static_cast<int>(schedule_.size()),
           graph_.tasks[static_cast<std::size_t>(missing - ran.begin())].name + " never runs");
    }
  }

  void write_history() {
    for (int i = 0; i < static_cast<int>(schedule_.size()); ++i) {
      const TaskStep& step = schedule_[as_index(i)];
      const Task& task = graph_.tasks[as_index(step.task)];
      const TaskOption& option = task.options[as_index(step.option)];
      for (const auto* list : {&task.reads, &task.updates, &option.reads}) {
        for (const int value : *list) history_[as_index(value)].events.push_back({i, false});
      }
      for (const int value : option.makes) history_[as_index(value)].events.push_back({i, true});
    }
  }

  // Whether the copy that is live now, or would be, has a reader still.
  bool wanted_later(int value) const {
    const ValueHistory& history = history_[as_index(value)];
    if (history.next == history.events.size()) return graph_.values[as_index(value)].live_at_end;
    return !history.events[history.next].makes;
  }

  void begin(int value) {
    live_[as_index(value)] = true;
    live_bytes_ += graph_.values[as_index(value)].bytes;
  }

  void end_unless_wanted(int value) {
    if (!live_[as_index(value)] || wanted_later(value)) return;
    live_[as_index(value)] = false;
    live_bytes_ -= graph_.values[as_index(value)].bytes;
  }

  void step(int i) {
    const TaskStep& step = schedule_[as_index(i)];
    const Task& task = graph_.tasks[as_index(step.task)];
    const TaskOption& option = task.options[as_index(step.option)];
    for (const auto* list : {&task.reads, &task.updates, &option.reads}) {
      for (const int value : *list) {
        if (!live_[as_index(value)]) {
          fail(i,
               task.name + " reads " + graph_.values[as_index(value)].name + ", which is not live");
        }
        ++history_[as_index(value)].next;
      }
    }
    for (const int value : option.makes) {
      if (live_[as_index(value)]) {
        fail(i,
             task.name + " makes " + graph_.values[as_index(value)].name + ", which is still live");
      }
      ++history_[as_index(value)].next;
      begin(value);
    }
    const std::int64_t during = live_bytes_ + option.transient_bytes;
    outcome_.during_bytes.push_back(during);
    if (during > outcome_.peak_bytes) {
      outcome_.peak_bytes = during;
      outcome_.peak_step = i;
    }
    for (const auto* list : {&task.reads, &task.updates, &option.reads, &option.makes}) {
      for (const int value : *list) end_unless_wanted(value);
    }
    outcome_.live_bytes.push_back(live_bytes_);
    outcome_.seconds += option.seconds;
  }

  const ComputationGraph& graph_;
  const TaskSchedule& schedule_;
  std::vector<ValueHistory> history_;
  std::vector<bool> live_;
  std::int64_t live_bytes_ = 0;
  ScheduleOutcome outcome_;
};

}  // namespace

ScheduleError::ScheduleError(int step, const std::string& reason)
    : Error(ExitCode::Other, fmt::format("the schedule is illegal at step {}: {}", step, reason)),
      step_(step) {}

ScheduleOutcome replay_schedule(const ComputationGraph& graph, const TaskSchedule& schedule) {
  return ScheduleReplay(graph, schedule).run();
}

TaskSchedule keep_all_schedule(const ComputationGraph& graph) {
  TaskSchedule schedule;
  schedule.reserve(graph.tasks.size());
  for (int t = 0; t < static_cast<int>(graph.tasks.size()); ++t) schedule.push_back({t, 0});
  return schedule;
}

}  // namespace garonne::plan
