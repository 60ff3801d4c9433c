// Asks one solver after the other for the micro-batches of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// The solvers that memory.plan names: those that it asks for "auto". Throws ConfigError
// (memory.plan) for an unknown name.
std::vector<const StageSolver*> find_solvers(const std::string& plan);

// `model` and `step` outlive it.
class StepPlanner {
 public:
  StepPlanner(const ModelGraph& model, const StepShape& step, TextCache* cache);

  // Why the solver does not apply to a micro-batch of the step; empty where it does.
  std::string refusal(const StageSolver& solver) const;

  // None where the solver does not apply.
  std::optional<StepSchedule> leanest(const StageSolver& solver) const;

  // The fastest of its candidates within `budget_bytes`, static bytes included. `lean`: a schedule
  // to start from where nothing else fits.
  std::optional<StepSchedule> fastest(const StageSolver& solver, std::int64_t budget_bytes,
                                      const StepSchedule& lean) const;

 private:
  StepSchedule of_step(std::vector<NodeSchedule> schedules) const;

  const StepShape& step_;
  std::vector<StageProblem> problems_;
};

}  // namespace garonne::plan
