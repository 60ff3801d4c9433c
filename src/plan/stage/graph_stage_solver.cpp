#include "plan/graph/graph_annealing.hpp"
#include "plan/graph/graph_solver.hpp"
#include "plan/stage/stage_solver.hpp"

namespace garonne::plan {
namespace {

// So that a plan takes a bounded time, and the same on any machine.
constexpr std::int64_t most_nodes_of_a_proof = 100;

std::vector<NodeSchedule> schedules_of(const StageProblem& problem, const TaskSchedule& schedule) {
  if (problem.too_long(schedule.size())) return {};
  return {to_node_schedule(problem.model, problem.tasks, schedule)};
}

}  // namespace

StageSolver graph_stage_solver(const GraphSolver& solver) {
  StageSolver row;
  row.name = solver.name;
  row.help = "on single nodes: " + solver.help;
  row.in_auto = false;
  row.refusal = [solver](const StageProblem& problem) {
    return refusal_of(solver, problem.tasks.graph);
  };
  row.solve = [solver](const StageProblem& problem, std::int64_t budget_bytes,
                       const NodeSchedule&) -> std::vector<NodeSchedule> {
    const ComputationGraph& graph = problem.tasks.graph;
    if (!refusal_of(solver, graph).empty()) return {};
    GraphSolverOptions options;
    if (solver.is_integer_program) options.iterations = most_nodes_of_a_proof;
    const GraphAnswer answer = solver.solve(graph, budget_bytes, options);
    if (!answer.schedule) return {};
    return schedules_of(problem, *answer.schedule);
  };
  row.leanest = [solver](const StageProblem& problem) -> std::vector<NodeSchedule> {
    const ComputationGraph& graph = problem.tasks.graph;
    if (!refusal_of(solver, graph).empty()) return {};
    return schedules_of(problem, leanest_schedule(graph, GraphSolverOptions()));
  };
  return row;
}

}  // namespace garonne::plan
