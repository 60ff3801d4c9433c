#include "plan/graph/checkmate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/graph/checkmate_model.hpp"
#include "plan/graph/graph_annealing.hpp"
#include "plan/graph/graph_bound.hpp"
#include "plan/graph/graph_replay.hpp"
#include "plan/graph/linear_program.hpp"

namespace garonne::plan {
namespace {

// What is published solves the relaxation for a tenth less than the budget, so that what is rounded
// lands within it.
constexpr double rounding_part = 0.9;

void expect_small(const ComputationGraph& graph, const char* algorithm) {
  if (graph.tasks.size() <= most_checkmate_tasks) return;
  throw ConfigError("algorithm", algorithm,
                    fmt::format("takes graphs of up to {} tasks and this one has {}: annealing "
                                "takes thousands",
                                most_checkmate_tasks, graph.tasks.size()));
}

void take_if_better(const ComputationGraph& graph, TaskSchedule schedule, std::int64_t budget_bytes,
                    GraphAnswer& answer) {
  const ScheduleOutcome outcome = replay_schedule(graph, schedule);
  answer.minimum_bytes = std::min(answer.minimum_bytes, outcome.peak_bytes);
  if (outcome.peak_bytes > budget_bytes) return;
  if (answer.schedule && outcome.seconds >= answer.seconds) return;
  answer.schedule = std::move(schedule);
  answer.seconds = outcome.seconds;
  answer.peak_bytes = outcome.peak_bytes;
}

}  // namespace

GraphAnswer solve_by_checkmate(const ComputationGraph& graph, std::int64_t budget_bytes,
                               const GraphSolverOptions& options) {
  expect_small(graph, "checkmate");
  const CheckmateModel model(graph, budget_bytes);
  LinearProgramOptions program_options;
  program_options.time_limit_seconds = options.time_limit_seconds;
  program_options.most_nodes = options.iterations;
  // A build without a solver says so before anything else is done.
  if (!has_linear_program_solver()) solve_linear_program(model.program(), program_options);

  GraphSolverOptions search = options;
  search.iterations = 300;
  GraphAnswer answer = solve_by_annealing(graph, budget_bytes, search);
  if (answer.schedule) {
    const auto known = model.in_class(*answer.schedule);
    if (known && replay_schedule(graph, *known).peak_bytes <= budget_bytes) {
      program_options.start = model.start(*known);
    }
  }
  const LinearProgramAnswer solved = solve_linear_program(model.program(), program_options);
  answer.stopped_by_time_limit = answer.stopped_by_time_limit || solved.stopped_by_time_limit;
  if (solved.status == LinearProgramStatus::Infeasible) {
    answer.proved = !answer.schedule;
    return answer;
  }
  answer.class_bound_seconds = std::max(solved.bound / model.scale(), answer.lower_bound_seconds);
  if (!solved.values.empty()) {
    take_if_better(graph, model.schedule(solved.values), budget_bytes, answer);
  }
  answer.proved = answer.schedule && answer.seconds <= *answer.class_bound_seconds * (1 + 1e-9);
  return answer;
}

GraphAnswer solve_by_checkmate_rounding(const ComputationGraph& graph, std::int64_t budget_bytes,
                                        const GraphSolverOptions& options) {
  expect_small(graph, "checkmate-rounding");
  GraphAnswer answer;
  answer.minimum_bytes = replay_schedule(graph, leanest_schedule(graph, options)).peak_bytes;
  answer.lower_bound_seconds = lower_bound_seconds(graph, budget_bytes);
  LinearProgramOptions program_options;
  program_options.relax = true;
  program_options.time_limit_seconds = options.time_limit_seconds;
  const auto tightened =
      static_cast<std::int64_t>(rounding_part * static_cast<double>(budget_bytes));
  const CheckmateModel model(graph, tightened);
  const LinearProgramAnswer relaxed = solve_linear_program(model.program(), program_options);
  answer.stopped_by_time_limit = relaxed.stopped_by_time_limit;
  if (relaxed.values.empty()) return answer;
  for (int tenth = 1; tenth <= 9; ++tenth) {
    auto rounded = model.rounded(relaxed.values, 0.1 * tenth);
    if (rounded) take_if_better(graph, std::move(*rounded), budget_bytes, answer);
  }
  return answer;
}

}  // namespace garonne::plan
