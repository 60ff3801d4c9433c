#include "plan/graph/task_option.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/contains.hpp"

namespace garonne::plan {
namespace {

bool makes_all(const TaskOption& option, const std::vector<int>& needed) {
  return std::all_of(needed.begin(), needed.end(),
                     [&](int value) { return contains(option.makes, value); });
}

}  // namespace

std::vector<int> made_by_any_option(const Task& task) {
  std::vector<int> made;
  for (const TaskOption& option : task.options) {
    for (const int value : option.makes) {
      if (!contains(made, value)) made.push_back(value);
    }
  }
  return made;
}

std::size_t most_made(const Task& task) {
  std::size_t most = 0;
  for (const TaskOption& option : task.options) most = std::max(most, option.makes.size());
  return most;
}

bool reads(const Task& task, int option, int value) {
  return contains(task.reads, value) || contains(task.updates, value) ||
         contains(task.options[static_cast<std::size_t>(option)].reads, value);
}

int option_of_both(const Task& task, int option, int other) {
  for (std::size_t o = 0; o < task.options.size(); ++o) {
    if (makes_all(task.options[o], task.options[static_cast<std::size_t>(option)].makes) &&
        makes_all(task.options[o], task.options[static_cast<std::size_t>(other)].makes))
      return static_cast<int>(o);
  }
  return -1;
}

int cheapest_option(const ComputationGraph& graph, int task, const std::vector<int>& needed) {
  const std::vector<TaskOption>& options = graph.tasks[static_cast<std::size_t>(task)].options;
  int best = -1;
  std::pair<double, std::int64_t> best_cost;
  for (std::size_t o = 0; o < options.size(); ++o) {
    const std::vector<int>& makes = options[o].makes;
    if (!makes_all(options[o], needed)) continue;
    std::int64_t bytes = options[o].transient_bytes;
    for (const int value : makes) bytes += graph.values[static_cast<std::size_t>(value)].bytes;
    const std::pair<double, std::int64_t> cost = {options[o].seconds, bytes};
    if (best >= 0 && cost >= best_cost) continue;
    best = static_cast<int>(o);
    best_cost = cost;
  }
  return best;
}

}  // namespace garonne::plan
