#include "plan/stage/stage_solver.hpp"

#include <algorithm>

#include "plan/chain/chain_solver.hpp"
#include "plan/graph/graph_solver.hpp"

namespace garonne::plan {

StageProblem make_stage_problem(const ModelGraph& model, const StepShape& step,
                                GradientBuckets buckets, TextCache* cache) {
  StageProblem problem{model, make_task_graph(model, step, buckets), std::nullopt,
                       most_steps_of_program / std::max(step.micro_batches, 1),
                       step.pipeline.order};
  problem.chain = make_stage_chain(model, problem.tasks, cache);
  return problem;
}

const std::vector<StageSolver>& stage_solvers() {
  static const std::vector<StageSolver> registry = [] {
    std::vector<StageSolver> rows = {keep_all_policy(),     selective_policy(),
                                     uniform_policy(),      full_policy(),
                                     greedy_stage_solver(), rotor_stage_solver(),
                                     search_stage_solver(), megatron_selective_policy()};
    const auto add = [&](StageSolver row) {
      const auto same = [&](const StageSolver& other) { return other.name == row.name; };
      if (std::none_of(rows.begin(), rows.end(), same)) rows.push_back(std::move(row));
    };
    for (const auto& solver : chain_solvers()) {
      if (!solver.refusal) add(chain_stage_solver(solver));
    }
    for (const auto& solver : graph_solvers()) add(graph_stage_solver(solver));
    return rows;
  }();
  return registry;
}

std::string refusal_of(const StageSolver& solver, const StageProblem& problem) {
  return solver.refusal ? solver.refusal(problem) : std::string();
}

}  // namespace garonne::plan
