#include "plan/graph/eviction_search.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "plan/graph/task_option.hpp"

namespace garonne::plan {

EvictionSearch::EvictionSearch(const ComputationGraph& graph, const TaskSchedule& start,
                               std::int64_t budget_bytes, std::uint64_t seed,
                               std::function<bool()> stop)
    : graph_(&graph),
      timeline_(graph, start),
      budget_(budget_bytes),
      random_(seed),
      stop_(std::move(stop)),
      least_peak_(timeline_.peak_bytes()),
      leanest_(start),
      draft_(graph, budget_bytes) {}

void EvictionSearch::insert(int position, TaskStep step) {
  timeline_.insert(position, step);
  log_.push_back({true, position, step});
}

void EvictionSearch::erase(int position) {
  log_.push_back({false, position, timeline_.step(position)});
  timeline_.erase(position);
}

void EvictionSearch::undo_to(std::size_t mark) {
  while (log_.size() > mark) {
    const Logged last = log_.back();
    log_.pop_back();
    if (last.inserted) {
      timeline_.erase(last.position);
    } else {
      timeline_.insert(last.position, last.step);
    }
  }
}

void EvictionSearch::note_peak() {
  const std::int64_t peak = timeline_.peak_bytes();
  if (peak >= least_peak_) return;
  least_peak_ = peak;
  leanest_ = timeline_.schedule();
}

// The eviction that is worth most of all that relieve a step; false where none is worth anything.
bool EvictionSearch::find_eviction(int position, Eviction& best) {
  best.worth = 0;
  Eviction eviction;
  for (std::size_t v = 0; v < graph_->values.size(); ++v) {
    const int value = static_cast<int>(v);
    if (draft_.maker(value) < 0 || graph_->values[v].bytes == 0) continue;
    const ScheduleTimeline::Copy copy = timeline_.copy_before(value, position);
    if (!copy.live_before() || copy.next == position || copy.next >= timeline_.size()) continue;
    const Task& task = graph_->tasks[as_index(draft_.maker(value))];
    double least_seconds = task.options[0].seconds;
    for (const TaskOption& option : task.options) {
      least_seconds = std::min(least_seconds, option.seconds);
    }
    const double factor = noise_ > 0 ? 1 + noise_ * (uniform() - 0.5) : 1;
    // Nothing more can vanish than what is over budget while it is idle.
    if (most_made(task) == 1) {
      const double most =
          std::min(static_cast<double>(over_[as_index(copy.next)] - over_[as_index(copy.last + 1)]),
                   static_cast<double>(graph_->values[v].bytes) *
                       (over_steps_[as_index(copy.next)] - over_steps_[as_index(copy.last + 1)]));
      if (factor * most / (least_seconds + draft_.smallest_seconds()) <= best.worth) continue;
    }
    bool all_live = true;
    for (const int read : task.reads) {
      all_live = all_live && timeline_.copy_before(read, copy.next).live_before();
    }
    for (const Missing missing : {Missing::Extend, Missing::Recompute, Missing::Cheaper}) {
      if (draft_.build(timeline_, value, copy.next, missing, price_, eviction)) {
        eviction.worth *= factor;
        if (eviction.gain > 0 && eviction.worth > best.worth) best = eviction;
      }
      if (all_live) break;
    }
  }
  return best.worth > 0;
}

std::vector<int> EvictionSearch::used_values(int position) const {
  const TaskStep& step = timeline_.step(position);
  std::vector<int> used;
  for (const int value : graph_->tasks[as_index(step.task)].options[as_index(step.option)].makes) {
    const ScheduleTimeline::Copy copy = timeline_.copy_before(value, position + 1);
    if (copy.live_before()) used.push_back(value);
  }
  return used;
}

void EvictionSearch::use_cheapest_option(int position) {
  const TaskStep step = timeline_.step(position);
  if (graph_->tasks[as_index(step.task)].once) return;
  const std::vector<int> used = used_values(position);
  if (used.empty() && timeline_.runs(step.task) > 1) {
    erase(position);
    return;
  }
  const int option = cheapest_option(*graph_, step.task, used);
  if (option == step.option) return;
  erase(position);
  insert(position, {step.task, option});
}

void EvictionSearch::apply(const Eviction& eviction) {
  int position = eviction.position;
  for (const TaskStep& step : eviction.chain) insert(position++, step);
  // From the last on, so that what vanishes before does not move what is still to be looked at.
  std::vector<int> earlier;
  for (const TaskStep& step : eviction.chain) {
    for (const int value :
         graph_->tasks[as_index(step.task)].options[as_index(step.option)].makes) {
      const ScheduleTimeline::Copy copy = timeline_.copy_before(value, eviction.position);
      if (copy.made >= 0 && copy.last == copy.made) earlier.push_back(copy.made);
    }
  }
  std::sort(earlier.rbegin(), earlier.rend());
  earlier.erase(std::unique(earlier.begin(), earlier.end()), earlier.end());
  for (const int made : earlier) use_cheapest_option(made);
}

bool EvictionSearch::repair() {
  const int most_steps = std::max(64, 16 * static_cast<int>(graph_->tasks.size()));
  Eviction best;
  while (timeline_.size() < most_steps && !stop_()) {
    const std::vector<std::int64_t>& during = timeline_.during();
    draft_.look_at(timeline_);
    over_.assign(1, 0);
    over_steps_.assign(1, 0);
    std::vector<int> positions;
    for (int i = 0; i < timeline_.size(); ++i) {
      const std::int64_t bytes = excess(during[as_index(i)]);
      over_.push_back(over_.back() + bytes);
      over_steps_.push_back(over_steps_.back() + (bytes > 0));
      if (bytes > 0) positions.push_back(i);
    }
    if (positions.empty()) return true;
    bool found = find_eviction(timeline_.peak_position(), best);
    // Where nothing helps the peak, something else may clear the way.
    for (int tries = 0; !found && tries < 16; ++tries) {
      found = find_eviction(positions[below(positions.size())], best);
    }
    if (!found) return false;
    price_ = best.seconds / static_cast<double>(best.gain);
    apply(best);
    note_peak();
  }
  return timeline_.peak_bytes() <= budget_;
}

// Takes a run out if the values that it makes were made before and, where that is asked, the
// schedule still fits with them kept from then on.
bool EvictionSearch::try_remove(int position, bool must_fit) {
  const TaskStep step = timeline_.step(position);
  const Task& task = graph_->tasks[as_index(step.task)];
  if (task.once || timeline_.runs(step.task) < 2) return false;
  ByteChanges changes;
  bool made_before = true;
  for (const int value : used_values(position)) {
    const ScheduleTimeline::Copy copy = timeline_.copy_before(value, position);
    made_before = made_before && copy.made > -2;
    changes.add(copy.last + 1, graph_->values[as_index(value)].bytes);
  }
  if (made_before) {
    for (const int value : task.reads) {
      const ScheduleTimeline::Copy copy = timeline_.copy_before(value, position);
      if (copy.end != position) continue;
      changes.add(copy.last + 1, -graph_->values[as_index(value)].bytes);
    }
    if (must_fit && !changes.fit(timeline_.during(), budget_, position - 1)) return false;
    erase(position);
    return true;
  }
  // An earlier run has to make more than it does.
  int earlier = position - 1;
  while (earlier >= 0 && timeline_.step(earlier).task != step.task) --earlier;
  if (earlier < 0) return false;
  std::vector<int> needed = used_values(earlier);
  for (const int value : used_values(position)) needed.push_back(value);
  const int option = cheapest_option(*graph_, step.task, needed);
  if (option < 0) return false;
  const std::size_t mark = log_.size();
  erase(position);
  erase(earlier);
  insert(earlier, {step.task, option});
  if (!must_fit || timeline_.peak_bytes() <= budget_) return true;
  undo_to(mark);
  return false;
}

std::vector<int> EvictionSearch::repeated_runs() const {
  std::vector<int> positions;
  for (int i = 0; i < timeline_.size(); ++i) {
    if (timeline_.runs(timeline_.step(i).task) > 1) positions.push_back(i);
  }
  return positions;
}

void EvictionSearch::prune() {
  std::vector<int> positions = repeated_runs();
  const auto seconds = [this](int position) {
    const TaskStep& step = timeline_.step(position);
    return graph_->tasks[as_index(step.task)].options[as_index(step.option)].seconds;
  };
  std::stable_sort(positions.begin(), positions.end(),
                   [&](int a, int b) { return seconds(a) > seconds(b); });
  for (std::size_t p = 0; p < positions.size(); ++p) {
    if (!try_remove(positions[p], true)) continue;
    for (std::size_t later = p + 1; later < positions.size(); ++later) {
      if (positions[later] > positions[p]) --positions[later];
    }
  }
}

void EvictionSearch::ruin() {
  const std::vector<int> runs = repeated_runs();
  if (runs.empty()) return;
  std::vector<int> chosen;
  const std::size_t count = 1 + below(10);
  const int centre = runs[below(runs.size())];
  const std::size_t way = below(3);
  if (way == 0) {
    for (std::size_t k = 0; k < count; ++k) chosen.push_back(runs[below(runs.size())]);
  } else {
    chosen = runs;
    const auto distance = [&](int position) {
      return way == 1 ? std::abs(position - centre)
                      : std::abs(timeline_.step(position).task - timeline_.step(centre).task);
    };
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](int a, int b) { return distance(a) < distance(b); });
    chosen.resize(std::min(count, chosen.size()));
  }
  std::sort(chosen.rbegin(), chosen.rend());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  for (const int position : chosen) try_remove(position, false);
}

void EvictionSearch::improve(std::int64_t rounds) {
  prune();
  TaskSchedule best = timeline_.schedule();
  double best_seconds = timeline_.seconds();
  double current = best_seconds;
  double least = 0;
  for (const Task& task : graph_->tasks) least += task.options[0].seconds;
  for (std::int64_t round = 0; round < rounds && !stop_(); ++round) {
    const double left = 1 - static_cast<double>(round) / static_cast<double>(rounds);
    // Temperature as a part of the time that recomputation adds.
    const double allowed = 0.01 * left * left * std::max(0.0, best_seconds - least);
    log_.clear();
    noise_ = 1.0 * uniform();
    ruin();
    const bool fits = repair();
    if (fits) prune();
    if (!fits || timeline_.seconds() > current + allowed) {
      undo_to(0);
      continue;
    }
    current = timeline_.seconds();
    if (current < best_seconds) {
      best_seconds = current;
      best = timeline_.schedule();
    }
  }
  noise_ = 0;
  log_.clear();
  timeline_ = ScheduleTimeline(*graph_, best);
}

}  // namespace garonne::plan
