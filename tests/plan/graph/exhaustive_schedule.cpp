#include "plan/graph/exhaustive_schedule.hpp"

#include <map>
#include <queue>
#include <tuple>
#include <vector>

namespace garonne::plan {
namespace {

// Dijkstra's algorithm over what ran, what is live and, in order, how far the current stretch is.
class Exhaustive {
 public:
  Exhaustive(const ComputationGraph& graph, std::int64_t budget_bytes, bool in_order)
      : graph_(graph), budget_(budget_bytes), in_order_(in_order) {}

  std::optional<double> run() {
    State start;
    std::uint64_t at_end = 0;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].live_at_start) start.live |= bit(v);
      if (graph_.values[v].live_at_end) at_end |= bit(v);
    }
    const std::uint64_t all = (std::uint64_t{1} << graph_.tasks.size()) - 1;
    reach(start, 0);
    while (!queue_.empty()) {
      const auto [seconds, state] = queue_.top();
      queue_.pop();
      if (seconds > best_.at(state)) continue;
      if (state.ran == all && (state.live & at_end) == at_end) return seconds;
      for (std::size_t v = 0; v < graph_.values.size(); ++v) {
        State dropped = state;
        dropped.live &= ~bit(v);
        if (dropped.live != state.live) reach(dropped, seconds);
      }
      for (std::size_t t = 0; t < graph_.tasks.size(); ++t) run_task(state, seconds, t);
    }
    return std::nullopt;
  }

 private:
  struct State {
    std::uint64_t ran = 0;
    std::uint64_t live = 0;
    std::size_t next = 0;  // in order: the first task that may run in this stretch
    auto operator<=>(const State&) const = default;
  };

  static std::uint64_t bit(std::size_t i) { return std::uint64_t{1} << i; }
  static std::uint64_t bits(const std::vector<int>& values) {
    std::uint64_t result = 0;
    for (const int value : values) result |= bit(static_cast<std::size_t>(value));
    return result;
  }

  void reach(const State& state, double seconds) {
    const auto [found, is_new] = best_.try_emplace(state, seconds);
    if (!is_new && found->second <= seconds) return;
    found->second = seconds;
    queue_.emplace(seconds, state);
  }

  void run_task(const State& state, double seconds, std::size_t t) {
    const Task& task = graph_.tasks[t];
    const bool first = (state.ran & bit(t)) == 0;
    if (task.once && !first) return;
    for (std::size_t before = 0; before < t; ++before) {
      const bool missing = (state.ran & bit(before)) == 0;
      if (missing && (in_order_ || (task.once && graph_.tasks[before].once))) return;
    }
    if (in_order_ && !first && t < state.next) return;
    const std::uint64_t reads = bits(task.reads) | bits(task.updates);
    if ((state.live & reads) != reads) return;
    for (const TaskOption& option : task.options) {
      if ((state.live & bits(option.reads)) != bits(option.reads)) continue;
      const std::uint64_t makes = bits(option.makes);
      if ((state.live & makes) != 0) continue;  // drop it first
      State after = state;
      after.ran |= bit(t);
      after.live |= makes;
      after.next = first ? 0 : t + 1;
      std::int64_t bytes = option.transient_bytes;
      for (std::size_t v = 0; v < graph_.values.size(); ++v) {
        if ((after.live & bit(v)) != 0) bytes += graph_.values[v].bytes;
      }
      if (bytes <= budget_) reach(after, seconds + option.seconds);
    }
  }

  const ComputationGraph& graph_;
  std::int64_t budget_;
  bool in_order_;
  std::map<State, double> best_;
  std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>,
                      std::greater<>>
      queue_;
};

}  // namespace

std::optional<double> fastest_schedule_seconds(const ComputationGraph& graph,
                                               std::int64_t budget_bytes) {
  return Exhaustive(graph, budget_bytes, false).run();
}

std::optional<double> fastest_in_order_seconds(const ComputationGraph& graph,
                                               std::int64_t budget_bytes) {
  return Exhaustive(graph, budget_bytes, true).run();
}

}  // namespace garonne::plan
