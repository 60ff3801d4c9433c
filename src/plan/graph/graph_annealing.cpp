#include "plan/graph/graph_annealing.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "plan/graph/eviction_search.hpp"
#include "plan/graph/graph_bound.hpp"
#include "plan/graph/graph_replay.hpp"

namespace garonne::plan {
namespace {

// Attempts at smaller peaks, each halving what is not known.
constexpr int most_targets = 12;
// Fewer for large graphs: an attempt takes time by the square of the size.
constexpr int targets_times_tasks = 16'000;

// Of one core's time this is a few seconds whatever the size.
std::int64_t rounds_for(const ComputationGraph& graph, const GraphSolverOptions& options) {
  if (options.iterations > 0) return options.iterations;
  const auto tasks = static_cast<std::int64_t>(std::max<std::size_t>(graph.tasks.size(), 1));
  return std::clamp<std::int64_t>(4'000'000 / tasks, 200, 20'000);
}

class Clock {
 public:
  explicit Clock(double limit_seconds) : limit_seconds_(limit_seconds) {}
  bool passed() {
    if (limit_seconds_ <= 0) return false;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    stopped_ = stopped_ || elapsed.count() > limit_seconds_;
    return stopped_;
  }
  bool stopped() const { return stopped_; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double limit_seconds_;
  bool stopped_ = false;
};

// Bytes that a task needs at its leanest, with what is wanted at the end and made before: no
// schedule has a smaller peak.
std::int64_t needed_bytes(const ComputationGraph& graph) {
  std::int64_t needed = 0;
  std::int64_t wanted = 0;
  for (const Task& task : graph.tasks) {
    std::int64_t bytes = 0;
    const auto count = [&](int value) {
      const TaskValue& each = graph.values[static_cast<std::size_t>(value)];
      if (!task.once || !each.live_at_end) bytes += each.bytes;
    };
    for (const int value : task.reads) count(value);
    for (const int value : task.updates) count(value);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const TaskOption& option : task.options) {
      std::int64_t made = option.transient_bytes;
      for (const int value : option.makes)
        made += graph.values[static_cast<std::size_t>(value)].bytes;
      least = std::min(least, made);
    }
    needed = std::max(needed, bytes + least + (task.once ? wanted : 0));
    if (!task.once) continue;
    for (const int value : task.options[0].makes) {
      const TaskValue& each = graph.values[static_cast<std::size_t>(value)];
      if (each.live_at_end) wanted += each.bytes;
    }
  }
  return needed;
}

// Evictions towards ever smaller peaks.
TaskSchedule find_leanest(const ComputationGraph& graph, std::uint64_t seed, Clock& clock) {
  TaskSchedule leanest = keep_all_schedule(graph);
  std::int64_t found = replay_schedule(graph, leanest).peak_bytes;
  std::int64_t refused = needed_bytes(graph) - 1;
  const int targets =
      std::clamp(targets_times_tasks / static_cast<int>(graph.tasks.size()), 2, most_targets);
  for (int i = 0; i < targets && refused < found - 1 && !clock.passed(); ++i) {
    const std::int64_t target = i == 0 ? refused + 1 : refused + (found - refused) / 2;
    EvictionSearch search(graph, keep_all_schedule(graph), target, seed,
                          [&] { return clock.passed(); });
    if (!search.repair()) refused = target;
    if (search.least_peak_bytes() >= found) continue;
    found = search.least_peak_bytes();
    leanest = search.leanest();
  }
  return leanest;
}

}  // namespace

TaskSchedule leanest_schedule(const ComputationGraph& graph, const GraphSolverOptions& options) {
  Clock clock(options.time_limit_seconds);
  return find_leanest(graph, options.seed, clock);
}

GraphAnswer solve_by_annealing(const ComputationGraph& graph, std::int64_t budget_bytes,
                               const GraphSolverOptions& options) {
  Clock clock(options.time_limit_seconds);
  GraphAnswer answer;
  answer.lower_bound_seconds = lower_bound_seconds(graph, budget_bytes);
  const auto stop = [&] { return clock.passed(); };
  EvictionSearch search(graph, keep_all_schedule(graph), budget_bytes, options.seed, stop);
  bool fits = search.repair();
  std::optional<TaskSchedule> leanest;
  if (!fits) {
    leanest = find_leanest(graph, options.seed, clock);
    if (replay_schedule(graph, *leanest).peak_bytes <= budget_bytes) {
      search = EvictionSearch(graph, *leanest, budget_bytes, options.seed, stop);
      fits = true;
    }
  }
  if (fits) {
    search.improve(rounds_for(graph, options));
    answer.schedule = search.timeline().schedule();
    const ScheduleOutcome outcome = replay_schedule(graph, *answer.schedule);
    answer.seconds = outcome.seconds;
    answer.peak_bytes = outcome.peak_bytes;
    answer.proved = answer.seconds <= answer.lower_bound_seconds * (1 + 1e-9);
  }
  if (!leanest) leanest = find_leanest(graph, options.seed, clock);
  answer.minimum_bytes = replay_schedule(graph, *leanest).peak_bytes;
  if (fits) answer.minimum_bytes = std::min(answer.minimum_bytes, answer.peak_bytes);
  // There was no time to look for it.
  if (clock.stopped()) {
    answer.minimum_bytes = std::min(answer.minimum_bytes, search.least_peak_bytes());
  }
  answer.stopped_by_time_limit = clock.stopped();
  return answer;
}

TaskSchedule improve_schedule(const ComputationGraph& graph, const TaskSchedule& schedule,
                              std::int64_t budget_bytes, const GraphSolverOptions& options) {
  Clock clock(options.time_limit_seconds);
  EvictionSearch search(graph, schedule, budget_bytes, options.seed,
                        [&] { return clock.passed(); });
  if (!search.repair()) return search.leanest();
  search.improve(rounds_for(graph, options));
  return search.timeline().schedule();
}

}  // namespace garonne::plan
