// Evictions that are thought of: the runs that would make a value again where it is used next, and
// what that would be worth.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/graph/byte_changes.hpp"
#include "plan/graph/schedule_timeline.hpp"

namespace garonne::plan {

// Runs to be put in front of a step, and what that is worth.
struct Eviction {
  int position = 0;
  std::vector<TaskStep> chain;
  double seconds = 0;
  std::int64_t gain = 0;  // bytes over budget, summed over steps, that vanish
  double worth = 0;
};

// What to do about what a run reads and what is not live where it shall run.
enum class Missing { Recompute, Extend, Cheaper };

class EvictionDraft {
 public:
  EvictionDraft(const ComputationGraph& graph, std::int64_t budget_bytes);

  // By value: the task that may run again for it, or -1.
  int maker(int value) const { return maker_[static_cast<std::size_t>(value)]; }
  // Added to the seconds of every eviction: runs that cost nothing shall still be compared by what
  // they gain.
  double smallest_seconds() const { return smallest_seconds_; }

  // Of the timeline as it is: before building on it, and after each change.
  void look_at(const ScheduleTimeline& timeline) { steps_.assign(timeline.during()); }
  // Makes `value` again in front of `position`. `price`: seconds for a byte over budget and step,
  // by which Missing::Cheaper decides. False where that cannot be.
  bool build(const ScheduleTimeline& timeline, int value, int position, Missing missing,
             double price, Eviction& eviction);

 private:
  // What stays the same while one chain is built.
  struct Place {
    const ScheduleTimeline& timeline;
    int position;
    Missing missing;
    double price;
  };

  bool add(const Place& place, int value, double& seconds);
  bool extends(const Place& place, int value, const ScheduleTimeline::Copy& copy, double& seconds);
  void evaluate(const ScheduleTimeline& timeline, Eviction& eviction);
  std::int64_t live_at_start(const ScheduleTimeline& timeline, const Eviction& eviction);
  std::int64_t excess_in_chain(const ScheduleTimeline& timeline, const Eviction& eviction,
                               std::int64_t live) const;

  const ComputationGraph* graph_;
  std::int64_t budget_;
  std::vector<int> maker_;
  double smallest_seconds_ = 0;

  // By task the option that runs in the chain, or -1; and those tasks.
  std::vector<int> option_;
  std::vector<int> tasks_;
  // By value: kept for longer instead of made in the chain; and those values.
  std::vector<bool> extended_;
  std::vector<int> extended_values_;
  // By value, the place in the chain; -1 for none.
  std::vector<int> last_reader_;
  ByteChanges changes_;
  StepBytes steps_;
};

}  // namespace garonne::plan
