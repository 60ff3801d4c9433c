#include "plan/graph_annealing.hpp"

#include <algorithm>
#include <chrono>

#include "plan/eviction_search.hpp"
#include "plan/graph_bound.hpp"
#include "plan/graph_replay.hpp"

namespace garonne::plan {
namespace {

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

}  // namespace

GraphAnswer solve_by_annealing(const ComputationGraph& graph, std::int64_t budget_bytes,
                               const GraphSolverOptions& options) {
  Clock clock(options.time_limit_seconds);
  GraphAnswer answer;
  answer.lower_bound_seconds = lower_bound_seconds(graph, budget_bytes);
  EvictionSearch search(graph, keep_all_schedule(graph), budget_bytes, options.seed);
  if (search.repair()) {
    search.improve(rounds_for(graph, options), [&] { return clock.passed(); });
    answer.schedule = search.timeline().schedule();
    const ScheduleOutcome outcome = replay_schedule(graph, *answer.schedule);
    answer.seconds = outcome.seconds;
    answer.peak_bytes = outcome.peak_bytes;
  }
  answer.minimum_bytes = search.least_peak_bytes();
  answer.stopped_by_time_limit = clock.stopped();
  return answer;
}

TaskSchedule improve_schedule(const ComputationGraph& graph, const TaskSchedule& schedule,
                              std::int64_t budget_bytes, const GraphSolverOptions& options) {
  Clock clock(options.time_limit_seconds);
  EvictionSearch search(graph, schedule, budget_bytes, options.seed);
  if (!search.repair()) return search.leanest();
  search.improve(rounds_for(graph, options), [&] { return clock.passed(); });
  return search.timeline().schedule();
}

}  // namespace garonne::plan
