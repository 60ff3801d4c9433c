#include "plan/stage/block_graph.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/index.hpp"
#include "plan/graph/graph_replay.hpp"
#include "plan/graph/graph_solver.hpp"

namespace garonne::plan {
namespace {

// Numbers the values that tasks of the block touch; those of others take no bytes here.
class BlockValues {
 public:
  BlockValues(const ComputationGraph& whole, const std::vector<bool>& counted,
              const std::vector<bool>& wanted_at_end, ComputationGraph& block)
      : whole_(whole), counted_(counted), wanted_at_end_(wanted_at_end), block_(block) {}

  // Live at the start until a task makes it.
  int add(int value) {
    const auto [entry, fresh] = number_.emplace(value, static_cast<int>(number_.size()));
    if (fresh) {
      const TaskValue& known = whole_.values[as_index(value)];
      const std::int64_t bytes = counted_[as_index(value)] ? known.bytes : 0;
      block_.values.push_back({known.name, bytes, true, wanted_at_end_[as_index(value)]});
    }
    return entry->second;
  }

  std::vector<int> add(std::vector<int> values) {
    for (int& value : values) value = add(value);
    return values;
  }

 private:
  const ComputationGraph& whole_;
  const std::vector<bool>& counted_;
  const std::vector<bool>& wanted_at_end_;
  ComputationGraph& block_;
  std::map<int, int> number_;
};

}  // namespace

BlockGraph::BlockGraph(const TaskGraph& tasks, int begin, int end, const std::vector<bool>& counted,
                       const std::vector<bool>& wanted_at_end)
    : nodes_(end - begin) {
  BlockValues values(tasks.graph, counted, wanted_at_end, graph_);
  std::int64_t most_transient_bytes = 0;
  const auto add = [&](int t, int forward) {
    Task task = tasks.graph.tasks[as_index(t)];
    task.reads = values.add(std::move(task.reads));
    task.updates = values.add(std::move(task.updates));
    for (TaskOption& option : task.options) {
      option.makes = values.add(std::move(option.makes));
      option.reads = values.add(std::move(option.reads));
      for (const int value : option.makes) graph_.values[as_index(value)].live_at_start = false;
      most_transient_bytes = std::max(most_transient_bytes, option.transient_bytes);
    }
    graph_.tasks.push_back(std::move(task));
    forward_of_task_.push_back(forward);
  };
  for (int n = begin; n < end; ++n) add(n, n - begin);
  const std::size_t between = graph_.tasks.size();
  Task ballast;
  ballast.name = "between";
  ballast.once = true;
  graph_.tasks.push_back(std::move(ballast));
  forward_of_task_.push_back(-1);
  for (std::size_t t = as_index(tasks.nodes); t < tasks.step_of_task.size(); ++t) {
    const int node = tasks.step_of_task[t].node;
    if (node >= begin && node < end) add(static_cast<int>(t), -1);
  }
  ballast_bytes_ = most_transient_bytes;
  for (const TaskValue& value : graph_.values) ballast_bytes_ += value.bytes;
  graph_.tasks[between].options.push_back({"ballast", {}, 0, ballast_bytes_});
}

std::vector<bool> BlockGraph::kept_within(std::int64_t bytes, std::int64_t rounds) const {
  GraphSolverOptions options;
  options.iterations = rounds;
  const TaskSchedule schedule =
      improve_schedule(graph_, keep_all_schedule(graph_), ballast_bytes_ + bytes, options);
  std::vector<int> runs(as_index(nodes_), 0);
  for (const TaskStep& step : schedule) {
    const int forward = forward_of_task_[as_index(step.task)];
    if (forward >= 0) ++runs[as_index(forward)];
  }
  std::vector<bool> kept;
  for (const int count : runs) kept.push_back(count == 1);
  return kept;
}

}  // namespace garonne::plan
