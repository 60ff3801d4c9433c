// A schedule of tasks that is changed step by step while the bytes of every step are kept up to
// date. Solvers work on it; replay does not.
//
// Any sequence in which each task's first run comes after the first runs of what it reads is legal,
// so steps may be put in and taken out freely. Bytes are a flat array instead of a segment tree: at
// the few thousand steps of a training step a scan costs as much as a walk down a tree, and it
// gives the sum of what is over budget, not only the peak.
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "plan/graph/computation_graph.hpp"

namespace garonne::plan {

class ScheduleTimeline {
 public:
  // The schedule must be legal.
  ScheduleTimeline(const ComputationGraph& graph, const TaskSchedule& schedule);

  int size() const { return static_cast<int>(order_.size()); }
  const TaskStep& step(int position) const { return steps_[as_index(order_[as_index(position)])]; }
  // Peak during the step at a position.
  std::int64_t during(int position) const { return during_[as_index(position)]; }
  const std::vector<std::int64_t>& during() const { return during_; }
  // Live between position - 1 and position.
  std::int64_t live_before(int position) const;
  double seconds() const { return seconds_; }
  std::int64_t peak_bytes() const;
  int peak_position() const;
  TaskSchedule schedule() const;
  // How often a task runs.
  int runs(int task) const { return runs_[as_index(task)]; }

  // Puts a step in front of what is at `position` now; takes the step at `position` out.
  void insert(int position, TaskStep step);
  void erase(int position);
  // Runs the step at `position` with another option of its task.
  void change_option(int position, int option);

  // One copy of a value around a position: where it was made (-1: live at the start), its last use
  // before the position, its next use at or after it (size() for wanted at the end), and its last
  // use at all. `made` is absent (-2) before the first; `next` is -1 where nobody uses it again.
  struct Copy {
    int made = -2;
    int last = -2;
    int next = -1;
    int end = -1;
    bool live_before() const { return made > -2 && next >= 0; }
  };
  Copy copy_before(int value, int position) const;
  // Where the value is made the first time at or after `position`; size() for nowhere.
  int made_from(int value, int position) const;
  // Where the copy that is made at `position` (by a step there) is used last; `position` for never.
  int end_of(int value, int position) const;

 private:
  struct Event {
    int id = 0;
    bool makes = false;
  };
  int position(const Event& event) const { return position_[as_index(event.id)]; }
  std::size_t first_event_from(int value, int position) const;
  void add(int from, int to, std::int64_t bytes);

  const ComputationGraph* graph_;
  std::vector<TaskStep> steps_;  // by id
  std::vector<int> position_;    // by id
  std::vector<int> order_;       // ids by position
  std::vector<int> free_ids_;
  std::vector<std::int64_t> during_;
  std::vector<std::vector<Event>> events_;  // by value, in order
  std::vector<int> runs_;
  double seconds_ = 0;
};

}  // namespace garonne::plan
