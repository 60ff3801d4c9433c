#include "train/plans/candidate_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <type_traits>

#include "base/error.hpp"
#include "base/in_threads.hpp"
#include "base/index.hpp"
#include "plan/grid/block_planner.hpp"
#include "plan/model/group_links.hpp"
#include "plan/program/passes_overlap.hpp"
#include "plan/program/replay.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/saving_plan.hpp"
#include "train/plans/smallest_budget.hpp"
#include "train/plans/step_parts.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

// What decides which blocks of a stage run again: equal stages get equal plans.
std::string kind_of_stage(const Setup& setup) {
  const plan::StepShape& step = setup.step;
  std::string text =
      fmt::format("{} {} {} {} {} ", step.micro_batches, step.zero, step.bucket_bytes,
                  step.data_group.size(), step.tensor_group.size());
  for (const auto& node : setup.model.graph.nodes)
    text += fmt::format("{} {};", node.cost_key, node.chunk);
  for (const auto& one : step.pipeline.order) {
    text += fmt::format("{}.{}.{} ", static_cast<int>(one.work), one.chunk, one.micro_batch);
  }
  return text;
}

bool is_as_declared(const Setup& whole, int stage, const Setup& setup) {
  if (whole.config.grid.pipeline == 1) return true;
  return std::ranges::equal(declared_stage(whole, stage).cut.graph.nodes, setup.model.graph.nodes,
                            {}, &plan::NodeSpec::name, &plan::NodeSpec::name);
}

plan::GridPins pins_of(const GridSearchRequest& wish) {
  const RunConfig& config = wish.config;
  plan::GridPins pins;
  const auto pin = [&](const char* key, auto& pinned, const auto& value) {
    using Value = typename std::remove_reference_t<decltype(pinned)>::value_type;
    if (wish.pinned.contains(key)) pinned = static_cast<Value>(value);
  };
  pin("grid.data", pins.data, config.grid.data);
  pin("grid.pipeline", pins.pipeline, config.grid.pipeline);
  pin("grid.tensor", pins.tensor, config.grid.tensor);
  pin("grid.sequence_parallel", pins.sequence_parallel, config.grid.sequence_parallel);
  pin("grid.schedule", pins.schedule, config.grid.schedule);
  // 0 leaves them to the schedule.
  if (config.grid.chunks > 0) pin("grid.chunks", pins.chunks, config.grid.chunks);
  pin("grid.zero", pins.zero, config.grid.zero);
  pin("grid.bucket", pins.bucket_bytes, config.grid.bucket);
  pin("train.micro_batch", pins.micro_batch, config.train.micro_batch);
  return pins;
}

}  // namespace

bool CandidatePlanner::is_measured(const plan::GridCandidate& candidate) const {
  return setup_of(candidate).measured;
}

plan::GridOutcome CandidatePlanner::plan(const plan::GridCandidate& candidate,
                                         double useless_seconds) {
  const Setup whole = setup_of(candidate).whole;
  if (names_plan(whole)) return plan_closely(candidate, Effort::All);
  plan::GridOutcome outcome;
  const plan::GridLinks links(wish_.cluster, whole.grid);
  const int stages = candidate.shape.pipeline;
  std::vector<StageByBlocks> planned(as_index(stages));
  in_threads(stages,
             [&](int stage) { planned[as_index(stage)] = plan_stage(whole, links, stage); });
  std::vector<plan::Program> programs;
  for (StageByBlocks& stage : planned) {
    outcome.needed_bytes = std::max(outcome.needed_bytes, stage.needed_bytes);
    programs.push_back(std::move(stage.program));
  }
  if (outcome.needed_bytes > 0) return outcome;
  outcome = replay(links, std::move(programs));
  if (outcome.seconds >= useless_seconds) return outcome;
  // Of a stage that is cut as it is declared the Program that was planned shows that it fits.
  std::vector<std::int64_t> beyond(as_index(stages));
  in_threads(stages, [&](int stage) {
    if (!planned[as_index(stage)].as_declared)
      beyond[as_index(stage)] = floor_beyond_budget(whole, stage);
  });
  const std::int64_t needed = *std::max_element(beyond.begin(), beyond.end());
  if (needed == 0) return outcome;
  plan::GridOutcome none;
  none.needed_bytes = needed;
  none.seconds = outcome.seconds;
  return none;
}

// What a run takes at least by a stage as it is declared, where that is more than the budget; else
// 0.
std::int64_t CandidatePlanner::floor_beyond_budget(const Setup& whole, int stage) const {
  try {
    floor_of_stage(whole, stage, wish_.budget_bytes, whole.config.memory.plan,
                   Effort::FirstThatFits);
  } catch (const PlanError& error) {
    return error.needed_bytes();
  }
  return 0;
}

plan::GridOutcome CandidatePlanner::plan_by_node(const plan::GridCandidate& candidate,
                                                 Effort effort) const {
  const Setup whole = setup_of(candidate).whole;
  const GridPlan grid = plan_grid(whole, wish_.budget_bytes, &wish_.cluster, effort);
  std::vector<plan::Program> programs;
  for (std::size_t stage = 0; stage < grid.stages.size(); ++stage) {
    const PlannedStage& planned = grid.stages[stage];
    programs.push_back(program_of_rank(planned.setup, planned.choice.program,
                                       whole.grid.rank_of({0, static_cast<int>(stage), 0})));
  }
  return replay(plan::GridLinks(wish_.cluster, whole.grid), std::move(programs));
}

plan::GridOutcome CandidatePlanner::plan_closely(const plan::GridCandidate& candidate,
                                                 Effort effort) const {
  try {
    return plan_by_node(candidate, effort);
  } catch (const PlanError& error) {
    plan::GridOutcome outcome;
    outcome.needed_bytes = error.needed_bytes();
    return outcome;
  }
}

CandidatePlanner::MeasuredSetup CandidatePlanner::setup_of(
    const plan::GridCandidate& candidate) const {
  MeasuredSetup made;
  made.whole = make_setup(with_candidate(wish_.config, candidate), wish_.facts, wish_.threads, 0,
                          device_facts(wish_.config, wish_.cluster));
  made.measured = apply_cluster(wish_.cluster, wish_.costs, made.whole);
  return made;
}

CandidatePlanner::StageByBlocks CandidatePlanner::plan_stage(const Setup& whole,
                                                             const plan::GridLinks& links,
                                                             int stage) {
  StageByBlocks found;
  std::int64_t reserved_bytes = 0;
  try {
    Setup setup = setup_of_stage(whole, stage);
    set_links(links, stage, setup);
    const PlanRoom room = room_for_plan(setup, setup.model.graph, setup.step, wish_.budget_bytes);
    reserved_bytes = room.reserved_bytes;
    const std::string kind = kind_of_stage(setup);
    std::optional<int> known;
    {
      const std::lock_guard lock(mutex_);
      const auto at = known_.find(kind);
      if (at != known_.end()) known = at->second;
    }
    check_evaluation(setup, room.budget_bytes);
    plan::BlockPlan planned =
        plan::plan_by_blocks(setup.model.graph, setup.step, room.budget_bytes, known);
    {
      const std::lock_guard lock(mutex_);
      known_[kind] = planned.index;
    }
    found.as_declared = is_as_declared(whole, stage, setup);
    found.program = program_of_rank(setup, planned.program, whole.grid.rank_of({0, stage, 0}));
  } catch (const PlanError& error) {
    found.needed_bytes = error.needed_bytes() + reserved_bytes;
  }
  return found;
}

// Validation is under the same budget.
void CandidatePlanner::check_evaluation(const Setup& setup, std::int64_t budget_bytes) {
  if (setup.config.evaluation.batches == 0) return;
  plan::StepShape step = setup.step;
  step.gathers_ahead = 0;
  const std::int64_t peak =
      plan::replay(plan::make_forward_program(setup.model.graph, step, setup.model.graph.loss))
          .peak_bytes;
  if (peak > budget_bytes) throw PlanError(peak, budget_bytes, "for validation");
}

plan::GridOutcome CandidatePlanner::replay(const plan::GridLinks& links,
                                           std::vector<plan::Program> programs) const {
  plan::GridOutcome outcome;
  outcome.fits = true;
  const StepPartsOfStages stages(programs, &links);
  for (const plan::Program& program : programs) {
    outcome.peak_bytes.push_back(program.peak_bytes);
    outcome.plans.push_back(program.name);
    outcome.passes_overlap |= plan::passes_overlap(program);
  }
  const std::vector<plan::Prediction> predictions =
      plan::replay_pipeline(std::move(programs), overlap_of(&wish_.cluster));
  for (const auto& prediction : predictions)
    outcome.seconds = std::max(outcome.seconds, prediction.seconds);
  StepParts parts = stages.of(predictions);
  outcome.bubble_seconds = parts.bubble_seconds;
  outcome.inside_traffic = parts.inside_traffic;
  outcome.between_traffic = parts.between_traffic;
  outcome.parts = std::move(parts.parts);
  return outcome;
}

bool names_plan(const Setup& setup) {
  return setup.config.memory.plan != "auto";
}

bool may_leave_device(const Setup& setup) {
  return names_plan(setup) && !setup.below.empty();
}

Setup setup_of_model(const GridSearchRequest& wish, int tensor, bool sequence_parallel,
                     std::int64_t micro_batch) {
  plan::GridCandidate candidate;
  candidate.shape = {1, 1, tensor};
  candidate.sequence_parallel = sequence_parallel;
  candidate.micro_batch = micro_batch;
  candidate.bucket_bytes = wish.config.grid.bucket;
  RunConfig config = with_candidate(wish.config, candidate);
  config.train.global_batch = micro_batch;
  Setup setup =
      make_setup(config, wish.facts, wish.threads, 0, device_facts(wish.config, wish.cluster));
  apply_cluster(wish.cluster, wish.costs, setup);
  return setup;
}

plan::BlocksOf blocks_of(const GridSearchRequest& wish) {
  return [&wish](int tensor, bool sequence_parallel, std::int64_t micro_batch) {
    const Setup setup = setup_of_model(wish, tensor, sequence_parallel, micro_batch);
    return plan::block_costs(setup.model.graph);
  };
}

plan::GridLimits limits_of(const GridSearchRequest& wish, const Setup& model) {
  plan::GridLimits limits;
  limits.ranks = wish.ranks;
  limits.global_batch = wish.config.train.global_batch;
  limits.blocks = model.model.graph.blocks();
  limits.most_tensor = wish.most_tensor > 0 ? wish.most_tensor : wish.cluster.devices_per_node;
  limits.least_bucket_bytes = wish.config.grid.bucket;
  limits.pins = pins_of(wish);
  return limits;
}

}  // namespace garonne::train
