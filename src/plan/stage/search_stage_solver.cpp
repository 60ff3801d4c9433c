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

struct Traced {
  TaskSchedule schedule;
  std::int64_t peak_bytes = 0;
  double seconds = 0;
};

// Whichever fits and is fastest, else the leanest.
std::optional<Traced> best_of(const StageProblem& problem, std::vector<NodeSchedule> candidates,
                              std::int64_t budget_bytes, std::optional<Traced> best) {
  for (const auto& candidate : candidates) {
    Traced traced{to_task_schedule(problem.tasks, candidate), 0, 0};
    const LivenessTrace trace = trace_liveness(problem.tasks.graph, traced.schedule);
    traced.peak_bytes = trace.peak_bytes;
    traced.seconds = trace.seconds;
    const bool fits = traced.peak_bytes <= budget_bytes;
    const bool best_fits = best && best->peak_bytes <= budget_bytes;
    const bool wins = !best || (fits != best_fits ? fits
                                : fits            ? traced.seconds < best->seconds
                                                  : traced.peak_bytes < best->peak_bytes);
    if (wins) best = std::move(traced);
  }
  return best;
}

Traced improved(const StageProblem& problem, const Traced& start, std::int64_t budget_bytes) {
  GraphSolverOptions options;
  options.iterations = search_rounds;
  Traced better{improve_schedule(problem.tasks.graph, start.schedule, budget_bytes, options), 0, 0};
  const LivenessTrace trace = trace_liveness(problem.tasks.graph, better.schedule);
  better.peak_bytes = trace.peak_bytes;
  better.seconds = trace.seconds;
  return better;
}

// A search is good at reaching a budget that is near: steps down that are halved where it fails.
Traced descended(const StageProblem& problem, Traced best) {
  std::int64_t step = best.peak_bytes / 16;
  for (int attempt = 0; attempt < 12 && step > best.peak_bytes / 1024; ++attempt) {
    const std::int64_t target = best.peak_bytes - step;
    Traced lower = improved(problem, best, target);
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
  Traced better = improved(problem, *start, budget_bytes);
  if (problem.too_long(better.schedule.size())) better = std::move(*start);
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
