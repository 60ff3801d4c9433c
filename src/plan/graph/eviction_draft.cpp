#include "plan/graph/eviction_draft.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "plan/graph/task_option.hpp"

namespace garonne::plan {
namespace {

// Longer chains are worth nothing: they hold too much at once, or cost as much as the network.
constexpr std::size_t longest_chain = 256;

}  // namespace

EvictionDraft::EvictionDraft(const ComputationGraph& graph, std::int64_t budget_bytes)
    : graph_(&graph),
      budget_(budget_bytes),
      maker_(graph.values.size(), -1),
      option_(graph.tasks.size(), -1),
      extended_(graph.values.size(), false),
      last_reader_(graph.values.size(), -1) {
  double total = 0;
  for (std::size_t t = 0; t < graph.tasks.size(); ++t) {
    total += graph.tasks[t].options[0].seconds;
    if (graph.tasks[t].once) continue;
    for (const int value : made_by_any_option(graph.tasks[t]))
      maker_[as_index(value)] = static_cast<int>(t);
  }
  smallest_seconds_ = std::max(1e-9 * total, 1e-300);
}

// Runs the maker of a value in the chain, and what that reads where it is missing. False where that
// cannot be.
bool EvictionDraft::add(const Place& place, int value, double& seconds) {
  const int task = maker_[as_index(value)];
  if (task < 0 || tasks_.size() >= longest_chain) return false;
  const auto& options = graph_->tasks[as_index(task)].options;
  int& option = option_[as_index(task)];
  if (option >= 0) {
    const auto& makes = options[as_index(option)].makes;
    if (std::find(makes.begin(), makes.end(), value) != makes.end()) return true;
    const int both = option_of_both(graph_->tasks[as_index(task)], option,
                                    cheapest_option(*graph_, task, {value}));
    if (both < 0) return false;
    seconds += options[as_index(both)].seconds - options[as_index(option)].seconds;
    option = both;
    return true;
  }
  option = cheapest_option(*graph_, task, {value});
  tasks_.push_back(task);
  seconds += options[as_index(option)].seconds;
  for (const int read : graph_->tasks[as_index(task)].reads) {
    const ScheduleTimeline::Copy copy = place.timeline.copy_before(read, place.position);
    if (copy.live_before()) continue;
    if (place.missing == Missing::Extend || maker_[as_index(read)] < 0) continue;
    // Decided once for the chain: paths to a value are exponentially many in deep residual
    // networks.
    if (extended_[as_index(read)]) continue;
    const std::size_t mark = tasks_.size();
    if (!extends(place, read, copy, seconds)) continue;
    for (std::size_t c = mark; c < tasks_.size(); ++c) option_[as_index(tasks_[c])] = -1;
    tasks_.resize(mark);
    extended_[as_index(read)] = true;
    extended_values_.push_back(read);
  }
  return true;
}

// Whether a missing value is kept for longer rather than made in the chain, whose seconds grow by
// it otherwise.
bool EvictionDraft::extends(const Place& place, int value, const ScheduleTimeline::Copy& copy,
                            double& seconds) {
  double more = 0;
  if (!add(place, value, more)) return true;
  if (place.missing == Missing::Cheaper) {
    changes_.clear();
    changes_.add(copy.last + 1, graph_->values[as_index(value)].bytes);
    const std::int64_t excess = changes_.excess(steps_, budget_, place.position - 1);
    if (place.price * static_cast<double>(excess) < more) return true;
  }
  seconds += more;
  return false;
}

bool EvictionDraft::build(const ScheduleTimeline& timeline, int value, int position,
                          Missing missing, double price, Eviction& eviction) {
  tasks_.clear();
  eviction.position = position;
  eviction.seconds = 0;
  const bool possible = add({timeline, position, missing, price}, value, eviction.seconds);
  if (possible) {
    std::sort(tasks_.begin(), tasks_.end());
    eviction.chain.clear();
    eviction.seconds = 0;
    for (const int task : tasks_) {
      const int option = option_[as_index(task)];
      eviction.chain.push_back({task, option});
      eviction.seconds += graph_->tasks[as_index(task)].options[as_index(option)].seconds;
    }
    evaluate(timeline, eviction);
  }
  for (const int task : tasks_) option_[as_index(task)] = -1;
  for (const int extended : extended_values_) extended_[as_index(extended)] = false;
  extended_values_.clear();
  return possible;
}

void EvictionDraft::evaluate(const ScheduleTimeline& timeline, Eviction& eviction) {
  changes_.clear();
  const std::int64_t live = live_at_start(timeline, eviction);
  const std::int64_t over = excess_in_chain(timeline, eviction, live);
  for (const TaskStep& step : eviction.chain) {
    for (const int value : graph_->tasks[as_index(step.task)].reads)
      last_reader_[as_index(value)] = -1;
  }
  eviction.gain = -changes_.excess(steps_, budget_, eviction.position - 1) - over;
  eviction.worth = static_cast<double>(eviction.gain) / (eviction.seconds + smallest_seconds_);
}

// Bytes live in front of the chain once what it makes is gone until then and what it reads is kept;
// notes who reads a value last in it, and what changes before.
std::int64_t EvictionDraft::live_at_start(const ScheduleTimeline& timeline,
                                          const Eviction& eviction) {
  const int position = eviction.position;
  std::int64_t live = timeline.live_before(position);
  for (std::size_t j = 0; j < eviction.chain.size(); ++j) {
    const Task& task = graph_->tasks[as_index(eviction.chain[j].task)];
    for (const int value : task.reads) {
      const std::int64_t bytes = graph_->values[as_index(value)].bytes;
      if (last_reader_[as_index(value)] < 0) {
        const int maker = maker_[as_index(value)];
        const bool made_here = maker >= 0 && option_[as_index(maker)] >= 0;
        const ScheduleTimeline::Copy copy = timeline.copy_before(value, position);
        if (!made_here && !copy.live_before()) {
          changes_.add(copy.last + 1, bytes);
          live += bytes;
        }
      }
      last_reader_[as_index(value)] = static_cast<int>(j);
    }
    for (const int value : task.options[as_index(eviction.chain[j].option)].makes) {
      const ScheduleTimeline::Copy copy = timeline.copy_before(value, position);
      if (!copy.live_before()) continue;
      changes_.add(copy.last + 1, -graph_->values[as_index(value)].bytes);
      live -= graph_->values[as_index(value)].bytes;
    }
  }
  return live;
}

// Bytes over budget, summed over the steps of the chain.
std::int64_t EvictionDraft::excess_in_chain(const ScheduleTimeline& timeline,
                                            const Eviction& eviction, std::int64_t live) const {
  std::int64_t over = 0;
  for (std::size_t j = 0; j < eviction.chain.size(); ++j) {
    const Task& task = graph_->tasks[as_index(eviction.chain[j].task)];
    const TaskOption& option = task.options[as_index(eviction.chain[j].option)];
    for (const int value : option.makes) live += graph_->values[as_index(value)].bytes;
    over += std::max(std::int64_t{0}, live + option.transient_bytes - budget_);
    const auto drop = [&](const std::vector<int>& values) {
      for (const int value : values) {
        if (last_reader_[as_index(value)] > static_cast<int>(j)) continue;
        if (timeline.copy_before(value, eviction.position).live_before()) continue;
        live -= graph_->values[as_index(value)].bytes;
      }
    };
    drop(task.reads);
    drop(option.makes);
  }
  return over;
}

}  // namespace garonne::plan
