#include <optional>
#include <utility>

#include "plan/graph/graph_solver.hpp"
#include "plan/graph/liveness.hpp"
#include "plan/stage/stage_solver.hpp"

namespace garonne::plan {
namespace {

constexpr const char* own_name = "search";

// What more rounds find on transformers of 4 to 24 layers is within a few parts in a thousand.
constexpr std::int64_t search_rounds = 1'000;

// Of records that are kept in another way; each has so many rounds to make room for it or to use
// what it leaves.
constexpr int most_changes_of_way = 48;
constexpr std::int64_t rounds_a_change = 20;

struct Traced {
  TaskSchedule schedule;
  std::int64_t peak_bytes = 0;
  double seconds = 0;
};

Traced traced(const StageProblem& problem, TaskSchedule schedule) {
  const LivenessTrace trace = trace_liveness(problem.tasks.graph, schedule);
  return {std::move(schedule), trace.peak_bytes, trace.seconds};
}

// Whichever fits and is fastest, else the leanest.
std::optional<Traced> best_of(const StageProblem& problem, std::vector<NodeSchedule> candidates,
                              std::int64_t budget_bytes, std::optional<Traced> best) {
  for (const auto& candidate : candidates) {
    Traced other = traced(problem, to_task_schedule(problem.tasks, candidate));
    const bool fits = other.peak_bytes <= budget_bytes;
    const bool best_fits = best && best->peak_bytes <= budget_bytes;
    const bool wins = !best || (fits != best_fits ? fits
                                : fits            ? other.seconds < best->seconds
                                                  : other.peak_bytes < best->peak_bytes);
    if (wins) best = std::move(other);
  }
  return best;
}

Traced improved(const StageProblem& problem, const TaskSchedule& start, std::int64_t budget_bytes,
                std::int64_t rounds) {
  GraphSolverOptions options;
  options.iterations = rounds;
  return traced(problem, improve_schedule(problem.tasks.graph, start, budget_bytes, options));
}

// The schedule with all records of the node made in that way; none where they are.
std::optional<TaskSchedule> in_way(const StageProblem& problem, const TaskSchedule& schedule,
                                   int node, int way) {
  NodeSchedule steps = to_node_schedule(problem.model, problem.tasks, schedule);
  bool changes = false;
  for (NodeStep& step : steps) {
    if (step.node != node || !step.keeps() || step.option == way) continue;
    step.option = way;
    changes = true;
  }
  if (!changes) return std::nullopt;
  return to_task_schedule(problem.tasks, steps);
}

// Runs are all that the search on graphs changes: ways in which records are made are tried here,
// one node after the other, and stay where that saves time. `best` fits.
Traced with_other_ways(const StageProblem& problem, Traced best, std::int64_t budget_bytes) {
  int left = most_changes_of_way;
  for (bool changed = true; changed && left > 0;) {
    changed = false;
    for (int n = 0; n < problem.tasks.nodes; ++n) {
      const std::vector<int>& ways = problem.tasks.keep_options[static_cast<std::size_t>(n)];
      for (std::size_t w = 0; ways.size() > 1 && w < ways.size() && left > 0; ++w) {
        const auto other = in_way(problem, best.schedule, n, ways[w]);
        if (!other) continue;
        --left;
        Traced tried = improved(problem, *other, budget_bytes, rounds_a_change);
        if (tried.peak_bytes > budget_bytes || tried.seconds >= best.seconds * (1 - 1e-9) ||
            problem.too_long(tried.schedule.size()))
          continue;
        best = std::move(tried);
        changed = true;
      }
    }
  }
  return best;
}

// A search is good at reaching a budget that is near: steps down that are halved where it fails.
Traced descended(const StageProblem& problem, Traced best) {
  std::int64_t step = best.peak_bytes / 16;
  for (int attempt = 0; attempt < 12 && step > best.peak_bytes / 1024; ++attempt) {
    const std::int64_t target = best.peak_bytes - step;
    Traced lower = improved(problem, best.schedule, target, search_rounds);
    if (problem.too_long(lower.schedule.size())) break;
    if (lower.peak_bytes > target) step /= 2;
    if (lower.peak_bytes < best.peak_bytes) best = std::move(lower);
  }
  return best;
}

// The others that "auto" asks.
std::vector<const StageSolver*> others() {
  std::vector<const StageSolver*> found;
  for (const auto& solver : stage_solvers()) {
    if (solver.in_auto && solver.name != own_name) found.push_back(&solver);
  }
  return found;
}

std::vector<NodeSchedule> solve(const StageProblem& problem, std::int64_t budget_bytes,
                                const NodeSchedule& lean) {
  std::optional<Traced> start = best_of(problem, {lean}, budget_bytes, std::nullopt);
  for (const StageSolver* solver : others()) {
    start = best_of(problem, solver->solve(problem, budget_bytes, lean), budget_bytes,
                    std::move(start));
  }
  if (!start) return {};
  Traced better = improved(problem, start->schedule, budget_bytes, search_rounds);
  if (problem.too_long(better.schedule.size())) better = std::move(*start);
  if (better.peak_bytes <= budget_bytes)
    better = with_other_ways(problem, std::move(better), budget_bytes);
  return {to_node_schedule(problem.model, problem.tasks, better.schedule)};
}

std::vector<NodeSchedule> leanest(const StageProblem& problem) {
  std::optional<Traced> start;
  for (const StageSolver* solver : others())
    start = best_of(problem, solver->leanest(problem), 0, std::move(start));
  if (!start) return {};
  return {to_node_schedule(problem.model, problem.tasks,
                           descended(problem, std::move(*start)).schedule)};
}

}  // namespace

StageSolver search_stage_solver() {
  StageSolver solver;
  solver.name = own_name;
  solver.help = "the best of all others that auto asks, improved by a search over single nodes";
  solver.solve = solve;
  solver.leanest = leanest;
  return solver;
}

}  // namespace garonne::plan
