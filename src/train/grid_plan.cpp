#include "train/grid_plan.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "train/cluster_costs.hpp"
#include "train/layout_check.hpp"

namespace garonne::train {

GridPlan plan_grid(const Setup& whole, std::int64_t budget_bytes, const plan::Cluster* cluster) {
  check_zero(whole.config);
  GridPlan grid;
  std::optional<PlanError> worst;
  std::optional<plan::GridLinks> links;
  if (cluster != nullptr) links.emplace(*cluster, whole.grid);
  for (int stage = 0; stage < whole.grid.shape().pipeline; ++stage) {
    StagePlan planned;
    planned.setup = setup_of_stage(whole, stage);
    if (links) set_links(*links, stage, planned.setup);
    try {
      planned.choice = choose_program(planned.setup, budget_bytes);
    } catch (const PlanError& error) {
      if (!worst || error.needed_bytes() > worst->needed_bytes()) worst = error;
      continue;
    }
    grid.minimum_budget_bytes =
        std::max(grid.minimum_budget_bytes, planned.choice.minimum_budget_bytes);
    grid.stages.push_back(std::move(planned));
  }
  if (worst) throw *worst;
  std::vector<plan::Program> programs;
  for (std::size_t stage = 0; stage < grid.stages.size(); ++stage) {
    const StagePlan& planned = grid.stages[stage];
    programs.push_back(program_of_rank(planned.setup, planned.choice,
                                       whole.grid.rank_of({0, static_cast<int>(stage), 0})));
  }
  double busiest = 0;
  for (const auto& program : programs) {
    double seconds = 0;
    for (const auto& instruction : program.instructions) {
      if (!instruction.channel) seconds += instruction.seconds;
    }
    busiest = std::max(busiest, seconds);
  }
  std::vector<plan::Prediction> predictions = plan::replay_pipeline(std::move(programs));
  for (std::size_t stage = 0; stage < grid.stages.size(); ++stage) {
    grid.stages[stage].prediction = std::move(predictions[stage]);
    grid.seconds = std::max(grid.seconds, grid.stages[stage].prediction.seconds);
    if (grid.stages[stage].prediction.peak_bytes >
        grid.stages[grid.largest].prediction.peak_bytes) {
      grid.largest = stage;
    }
  }
  grid.bubble_seconds = std::max(0.0, grid.seconds - busiest);
  return grid;
}

}  // namespace garonne::train
