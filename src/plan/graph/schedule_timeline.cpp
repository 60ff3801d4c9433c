#include "plan/graph/schedule_timeline.hpp"

#include <algorithm>

namespace garonne::plan {

ScheduleTimeline::ScheduleTimeline(const ComputationGraph& graph, const TaskSchedule& schedule)
    : graph_(&graph), events_(graph.values.size()), runs_(graph.tasks.size(), 0) {
  const int steps = static_cast<int>(schedule.size());
  steps_ = schedule;
  for (int i = 0; i < steps; ++i) {
    position_.push_back(i);
    order_.push_back(i);
    const Task& task = graph.tasks[as_index(schedule[as_index(i)].task)];
    const TaskOption& option = task.options[as_index(schedule[as_index(i)].option)];
    for (const auto* list : {&task.reads, &task.updates, &option.reads}) {
      for (const int value : *list) events_[as_index(value)].push_back({i, false});
    }
    for (const int value : option.makes) events_[as_index(value)].push_back({i, true});
    during_.push_back(option.transient_bytes);
    seconds_ += option.seconds;
    ++runs_[as_index(schedule[as_index(i)].task)];
  }
  for (std::size_t v = 0; v < events_.size(); ++v) {
    const int value = static_cast<int>(v);
    const std::int64_t bytes = graph.values[v].bytes;
    if (graph.values[v].live_at_start) {
      const int end = copy_before(value, 0).next < 0 ? -1 : copy_before(value, 0).end;
      add(0, std::min(end, steps - 1), bytes);
    }
    for (const Event& event : events_[v]) {
      if (event.makes) add(position(event), end_of(value, position(event)), bytes);
    }
  }
}

std::size_t ScheduleTimeline::first_event_from(int value, int position) const {
  const auto& events = events_[as_index(value)];
  const auto found = std::lower_bound(
      events.begin(), events.end(), position,
      [this](const Event& event, int wanted) { return position_[as_index(event.id)] < wanted; });
  return static_cast<std::size_t>(found - events.begin());
}

ScheduleTimeline::Copy ScheduleTimeline::copy_before(int value, int position) const {
  const auto& events = events_[as_index(value)];
  const std::size_t next = first_event_from(value, position);
  Copy copy;
  std::size_t made = next;
  while (made > 0 && !events[made - 1].makes) --made;
  if (made > 0) {
    copy.made = this->position(events[made - 1]);
  } else if (graph_->values[as_index(value)].live_at_start) {
    copy.made = -1;
  } else {
    return copy;
  }
  copy.last = next > 0 ? this->position(events[next - 1]) : -1;
  copy.end = copy.last;
  std::size_t after = next;
  for (; after < events.size() && !events[after].makes; ++after) {
    copy.end = this->position(events[after]);
  }
  if (next < after) copy.next = this->position(events[next]);
  if (after == events.size() && graph_->values[as_index(value)].live_at_end) {
    if (copy.next < 0) copy.next = size();
    copy.end = size();
  }
  return copy;
}

int ScheduleTimeline::made_from(int value, int position) const {
  const auto& events = events_[as_index(value)];
  for (std::size_t e = first_event_from(value, position); e < events.size(); ++e) {
    if (events[e].makes) return this->position(events[e]);
  }
  return size();
}

int ScheduleTimeline::end_of(int value, int position) const {
  const Copy copy = copy_before(value, position + 1);
  return std::min(copy.end, size() - 1);
}

std::int64_t ScheduleTimeline::live_before(int position) const {
  if (position == size()) {
    std::int64_t bytes = 0;
    for (const TaskValue& value : graph_->values) {
      if (value.live_at_end) bytes += value.bytes;
    }
    return bytes;
  }
  const TaskStep& step = this->step(position);
  const TaskOption& option = graph_->tasks[as_index(step.task)].options[as_index(step.option)];
  std::int64_t bytes = during_[as_index(position)] - option.transient_bytes;
  for (const int value : option.makes) bytes -= graph_->values[as_index(value)].bytes;
  return bytes;
}

std::int64_t ScheduleTimeline::peak_bytes() const {
  return during_.empty() ? 0 : *std::max_element(during_.begin(), during_.end());
}

int ScheduleTimeline::peak_position() const {
  return static_cast<int>(std::max_element(during_.begin(), during_.end()) - during_.begin());
}

TaskSchedule ScheduleTimeline::schedule() const {
  TaskSchedule result;
  result.reserve(order_.size());
  for (const int id : order_) result.push_back(steps_[as_index(id)]);
  return result;
}

void ScheduleTimeline::add(int from, int to, std::int64_t bytes) {
  for (int i = from; i <= to; ++i) during_[as_index(i)] += bytes;
}

void ScheduleTimeline::insert(int position, TaskStep step) {
  const Task& task = graph_->tasks[as_index(step.task)];
  const TaskOption& option = task.options[as_index(step.option)];
  const std::int64_t before = live_before(position);
  int id = static_cast<int>(steps_.size());
  if (free_ids_.empty()) {
    steps_.push_back(step);
    position_.push_back(position);
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
    steps_[as_index(id)] = step;
    position_[as_index(id)] = position;
  }
  for (std::size_t i = as_index(position); i < order_.size(); ++i) ++position_[as_index(order_[i])];
  order_.insert(order_.begin() + position, id);
  during_.insert(during_.begin() + position, before + option.transient_bytes);
  seconds_ += option.seconds;
  ++runs_[as_index(step.task)];

  for (const auto* list : {&task.reads, &task.updates, &option.reads}) {
    for (const int value : *list) {
      const Copy copy = copy_before(value, position);
      const int end = copy.live_before() ? copy.end : copy.last;
      if (copy.made > -2) add(end + 1, position, graph_->values[as_index(value)].bytes);
      auto& events = events_[as_index(value)];
      const auto place = static_cast<std::ptrdiff_t>(first_event_from(value, position));
      events.insert(events.begin() + place, {id, false});
    }
  }
  for (const int value : option.makes) {
    const Copy copy = copy_before(value, position);
    const std::int64_t bytes = graph_->values[as_index(value)].bytes;
    auto& events = events_[as_index(value)];
    const auto place = static_cast<std::ptrdiff_t>(first_event_from(value, position));
    events.insert(events.begin() + place, {id, true});
    if (copy.made == -2) {
      add(position, end_of(value, position), bytes);
    } else if (copy.live_before()) {
      add(copy.last + 1, position - 1, -bytes);
    } else {
      add(position, position, bytes);
    }
  }
}

void ScheduleTimeline::erase(int position) {
  const int id = order_[as_index(position)];
  const TaskStep step = steps_[as_index(id)];
  const Task& task = graph_->tasks[as_index(step.task)];
  const TaskOption& option = task.options[as_index(step.option)];
  const auto remove_event = [&](int value) {
    const auto place = static_cast<std::ptrdiff_t>(first_event_from(value, position));
    events_[as_index(value)].erase(events_[as_index(value)].begin() + place);
  };
  for (const auto* list : {&task.reads, &task.updates, &option.reads}) {
    for (const int value : *list) {
      const Copy copy = copy_before(value, position);
      if (copy.made > -2 && copy.end == position) {
        add(copy.last + 1, position, -graph_->values[as_index(value)].bytes);
      }
      remove_event(value);
    }
  }
  for (const int value : option.makes) {
    const std::int64_t bytes = graph_->values[as_index(value)].bytes;
    const int end = end_of(value, position);
    const Copy before = copy_before(value, position);
    if (before.made == -2) {
      add(position, end, -bytes);
    } else if (end > position) {
      add(before.last + 1, position - 1, bytes);
    } else {
      add(position, position, -bytes);
    }
    remove_event(value);
  }
  order_.erase(order_.begin() + position);
  during_.erase(during_.begin() + position);
  for (std::size_t i = as_index(position); i < order_.size(); ++i) --position_[as_index(order_[i])];
  free_ids_.push_back(id);
  seconds_ -= option.seconds;
  --runs_[as_index(step.task)];
}

void ScheduleTimeline::change_option(int position, int option) {
  const int task = step(position).task;
  erase(position);
  insert(position, {task, option});
}

}  // namespace garonne::plan
