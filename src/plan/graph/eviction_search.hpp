// Local search on schedules of tasks under a budget of bytes: evicts values over idle stretches by
// running again what makes them, and takes such runs out where they have become superfluous.
//
// Sequences with moves that put in, take out and shift runs are those of FastSA (Yamaguchi et al.,
// NeurIPS 2023). Here moves are chosen by what they are worth (bytes over budget that they remove,
// per second that they add) instead of blindly, in rounds that take runs out and repair.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "plan/graph/eviction_draft.hpp"
#include "plan/graph/schedule_timeline.hpp"

namespace garonne::plan {

class EvictionSearch {
 public:
  // Everything ends early once `stop` says so.
  EvictionSearch(const ComputationGraph& graph, const TaskSchedule& start,
                 std::int64_t budget_bytes, std::uint64_t seed, std::function<bool()> stop);

  // Evicts until the peak fits; false where nothing helps any more.
  bool repair();
  // Takes out runs without which the schedule still fits, dearest first.
  void prune();
  // Rounds of taking runs out, repairing and pruning. The best schedule is what is left. Needs a
  // schedule that fits.
  void improve(std::int64_t rounds);

  const ScheduleTimeline& timeline() const { return timeline_; }
  // The least peak that any schedule on the way had, and a schedule that has it.
  std::int64_t least_peak_bytes() const { return least_peak_; }
  const TaskSchedule& leanest() const { return leanest_; }

 private:
  struct Logged {
    bool inserted = false;
    int position = 0;
    TaskStep step;
  };

  std::int64_t excess(std::int64_t bytes) const { return bytes > budget_ ? bytes - budget_ : 0; }
  bool find_eviction(int position, Eviction& best);
  void apply(const Eviction& eviction);
  std::vector<int> used_values(int position) const;
  void use_cheapest_option(int position);
  bool try_remove(int position, bool must_fit);
  std::vector<int> repeated_runs() const;
  void ruin();

  void insert(int position, TaskStep step);
  void erase(int position);
  void undo_to(std::size_t mark);
  void note_peak();
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  const ComputationGraph* graph_;
  ScheduleTimeline timeline_;
  std::int64_t budget_;
  std::mt19937_64 random_;
  std::function<bool()> stop_;
  double noise_ = 0;
  double price_ = 0;  // seconds for a byte over budget and step, as paid last
  std::vector<Logged> log_;
  std::int64_t least_peak_ = 0;
  TaskSchedule leanest_;

  EvictionDraft draft_;
  std::vector<std::int64_t> over_;  // bytes over budget before each step, summed up
  std::vector<int> over_steps_;     // steps over budget before each step
};

}  // namespace garonne::plan
