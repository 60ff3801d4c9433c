#include "plan_programs.hpp"

#include <vector>

#include "train/plans/saved_programs.hpp"

namespace garonne::apps {
void write_programs(const train::GridPlan& plan, const std::string& folder) {
  const Grid& grid = plan.stages.front().setup.grid;
  std::vector<std::vector<int>> ranks(plan.stages.size());
  const auto program_of = [&](int rank) {
    const train::PlannedStage& stage =
        plan.stages[static_cast<std::size_t>(grid.coordinates_of(rank).pipeline)];
    return train::program_of_rank(stage.setup, stage.choice.program, rank);
  };
  for (int rank = 0; rank < grid.ranks(); ++rank)
    ranks[static_cast<std::size_t>(grid.coordinates_of(rank).pipeline)].push_back(rank);
  // Of larger grids the stages were replayed when they were planned.
  train::replay_ranks(grid, program_of);
  for (const auto& of_stage : ranks)
    train::save_program(folder, program_of(of_stage.front()), of_stage, {});
}

}  // namespace garonne::apps
