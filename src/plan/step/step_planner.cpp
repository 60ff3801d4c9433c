#include "plan/step/step_planner.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "plan/graph/liveness.hpp"

namespace garonne::plan {
namespace {

LivenessTrace trace(const StageProblem& problem, const NodeSchedule& schedule) {
  return trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, schedule));
}

}  // namespace

std::vector<const StageSolver*> find_solvers(const std::string& plan) {
  std::vector<const StageSolver*> solvers;
  std::string names = "auto";
  for (const auto& solver : stage_solvers()) {
    names += ", " + solver.name;
    if (plan == "auto" ? solver.in_auto : plan == solver.name) solvers.push_back(&solver);
  }
  if (solvers.empty()) {
    throw ConfigError("memory.plan", plan, "unknown plan; known are " + names);
  }
  return solvers;
}

std::string StepPlanner::refusal(const StageSolver& solver) const {
  std::string reason;
  for (const auto& problem : problems_) {
    if (reason.empty()) reason = refusal_of(solver, problem);
  }
  return reason;
}

StepPlanner::StepPlanner(const ModelGraph& model, const StepShape& step, TextCache* cache)
    : step_(step) {
  // Gradients are made in the first micro-batch and stay through the later ones.
  problems_.push_back(make_stage_problem(model, step, GradientBuckets::Made, cache));
  if (step.micro_batches > 1) {
    const auto later =
        step.reduces_each_micro_batch() ? GradientBuckets::Made : GradientBuckets::There;
    problems_.push_back(make_stage_problem(model, step, later, cache));
  }
}

std::optional<StepSchedule> StepPlanner::leanest(const StageSolver& solver) const {
  std::vector<NodeSchedule> schedules;
  for (const auto& problem : problems_) {
    std::vector<NodeSchedule> candidates = solver.leanest(problem);
    if (candidates.empty()) return std::nullopt;
    const auto best =
        std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
          return trace(problem, a).peak_bytes < trace(problem, b).peak_bytes;
        });
    schedules.push_back(std::move(*best));
  }
  return of_step(std::move(schedules));
}

std::optional<StepSchedule> StepPlanner::fastest(const StageSolver& solver,
                                                 std::int64_t budget_bytes,
                                                 const StepSchedule& lean) const {
  std::vector<NodeSchedule> schedules;
  for (const auto& problem : problems_) {
    const std::int64_t budget = budget_bytes - problem.tasks.static_bytes;
    std::optional<NodeSchedule> best;
    double seconds = std::numeric_limits<double>::infinity();
    for (auto& candidate : solver.solve(problem, budget, lean.schedules[schedules.size()])) {
      const LivenessTrace traced = trace(problem, candidate);
      if (traced.peak_bytes > budget || traced.seconds >= seconds) continue;
      seconds = traced.seconds;
      best = std::move(candidate);
    }
    if (!best) return std::nullopt;
    schedules.push_back(std::move(*best));
  }
  return of_step(std::move(schedules));
}

StepSchedule StepPlanner::of_step(std::vector<NodeSchedule> schedules) const {
  StepSchedule step;
  step.of_micro_batch.assign(static_cast<std::size_t>(step_.micro_batches),
                             static_cast<int>(schedules.size()) - 1);
  step.of_micro_batch[0] = 0;
  step.schedules = std::move(schedules);
  return step;
}

}  // namespace garonne::plan
