#include "train/grid_plan.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
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

double seconds_of_step(const Setup& setup, const plan::Program& program, dist::Session& session) {
  if (setup.grid.shape().pipeline == 1) return program.seconds;
  const Coordinates place = setup.grid.coordinates_of(session.rank());
  const bool representative = place.data == 0 && place.tensor == 0;
  const auto texts = session.gather(
      representative ? plan::to_json(program, {session.rank()}, {}).dump() : std::string());
  double seconds = 0;
  if (session.rank() == 0) {
    std::vector<plan::Program> stages;
    for (const auto& text : texts) {
      if (text.empty()) continue;
      stages.push_back(
          plan::program_from_json(nlohmann::json::parse(text), "the Program of a stage"));
    }
    if (setup.config.grid.transport == "nccl")
      plan::check_lanes(stages, setup.step.pipeline.lane_numbers);
    for (const auto& prediction : plan::replay_pipeline(std::move(stages)))
      seconds = std::max(seconds, prediction.seconds);
  }
  return session.all_reduce_max(std::vector<double>{seconds})[0];
}

}  // namespace garonne::train
