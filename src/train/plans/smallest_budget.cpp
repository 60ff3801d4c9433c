#include "train/plans/smallest_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/bytes.hpp"
#include "base/cache_folder.hpp"
#include "base/error.hpp"
#include "base/key_limits.hpp"
#include "plan/offload/memory_ways.hpp"
#include "plan/offload/policy_planner.hpp"
#include "plan/offload/weight_offload.hpp"
#include "train/plans/saving_plan.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/option_folder.hpp"

namespace garonne::train {
namespace {

std::vector<std::string> names_of(const plan::ModelGraph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes) names.push_back(node.name);
  return names;
}

// The Program of a validation; one that does not fit comes with as little under way as can be.
void add_validation(const Setup& setup, std::int64_t budget_bytes, Choice& choice) {
  plan::StepShape step = setup.step;
  // As many gathers ahead as fit.
  for (step.gathers_ahead = 2;; --step.gathers_ahead) {
    choice.evaluation = plan::make_forward_program(setup.model.graph, step, setup.model.graph.loss);
    choice.evaluation_prediction = plan::replay(choice.evaluation);
    if (choice.evaluation_prediction.peak_bytes <= budget_bytes || step.gathers_ahead == 0) break;
  }
  choice.evaluation.peak_bytes = choice.evaluation_prediction.peak_bytes;
  choice.evaluation.seconds = choice.evaluation_prediction.seconds;
  choice.evaluation.tier(Tier::Device).budget_bytes = budget_bytes;
  choice.evaluation.name = "forward-only";
}

// It has its state where the plan has it. Nothing where that is too much for the budget.
bool place_validation(const Setup& setup, std::int64_t budget_bytes, Choice& choice) {
  if (choice.evaluation.instructions.empty()) return true;
  std::map<Tier, plan::TierLinks> links;
  for (const auto& [tier, below] : setup.below.tiers) links[tier] = below.links;
  auto placed = plan::with_lasting_as(choice.evaluation, choice.program, links, budget_bytes);
  if (!placed) return false;
  choice.evaluation = std::move(*placed);
  choice.evaluation_prediction = plan::replay(choice.evaluation);
  return true;
}

// Errors are of the whole budget.
plan::StagePlan plan_stage(const Setup& setup, const plan::TierRequest& wish,
                           std::int64_t reserved_bytes) {
  try {
    return plan::plan_stage_on_tiers(setup.model.graph, setup.step, wish);
  } catch (const PlanError& error) {
    if (reserved_bytes == 0) throw;
    throw PlanError(error.needed_bytes() + reserved_bytes, error.available_bytes() + reserved_bytes,
                    detail_of_copy(reserved_bytes));
  }
}

// What the lower tiers' own budgets make of the smallest one, `bytes`. Empty where larger ones make
// no less.
template <typename LeastWith>
std::string limit_of_tiers(plan::LowerTiers below, std::int64_t bytes,
                           const LeastWith& least_with) {
  std::string limits;
  for (auto& [tier, lower] : below.tiers) {
    if (lower.budget_bytes >= most_key_bytes) continue;
    limits += fmt::format("{}{} for each rank on the {} (memory.{}_budget)",
                          limits.empty() ? "" : " and ", format_bytes(lower.budget_bytes),
                          to_string(tier), to_string(tier));
    lower.budget_bytes = most_key_bytes;
  }
  if (limits.empty()) return "";
  const std::int64_t least = least_with(below);
  if (least >= bytes) return "";
  return fmt::format("that is with {}, and with more there {} is enough", limits,
                     format_bytes(least));
}

// The stage that a setup is of, if it is of one.
int stage_of(const Setup& setup) {
  return setup.step.pipeline.order.empty() ? -1 : setup.step.pipeline.member;
}

}  // namespace

StageFloor floor_of_stage(const Setup& setup, int stage, std::int64_t budget_bytes,
                          const std::string& wanted, Effort effort) {
  plan::StepShape step = setup.step;
  std::optional<plan::PipelineStage> cut;
  if (setup.config.grid.pipeline > 1 && stage >= 0) {
    cut = declared_stage(setup, stage);
    put_in_pipeline(cut->place, setup, step);
  }
  const plan::ModelGraph& graph = cut ? cut->cut.graph : *setup.declared;
  StageFloor floor;
  floor.nodes = names_of(graph);
  std::optional<plan::Program> forward;
  if (setup.config.evaluation.batches > 0) {
    plan::StepShape shape = step;
    shape.gathers_ahead = 0;
    forward = plan::make_forward_program(graph, shape, graph.loss);
    forward->peak_bytes = plan::replay(*forward).peak_bytes;
  }
  const std::int64_t validation = forward ? forward->peak_bytes : 0;
  const PlanRoom room = room_for_plan(setup, graph, step, budget_bytes);
  const bool may_keep = wanted == "auto" || wanted == plan::stage_solvers().front().name;
  if (effort != Effort::All && may_keep && validation <= room.budget_bytes &&
      plan::keeping_everything_fits(graph, step, room.budget_bytes)) {
    return floor;
  }
  OptionFolder cache(cache_folder());
  floor.lean = plan::find_lean_plans(graph, step, plan::schedule_of_plan(wanted), &cache);
  floor.bytes = std::max(floor.lean->bytes, validation);
  std::string limit;
  if (!setup.below.empty()) {
    floor.on_device_bytes = floor.bytes - disk_copy_bytes(setup);
    const plan::OffloadPolicy* const policy = plan::offload_policy(wanted);
    const auto floor_with = [&](const plan::LowerTiers& below) {
      const plan::Program* const beside = forward ? &*forward : nullptr;
      if (policy != nullptr)
        return plan::find_policy_floor(*policy, graph, step, *floor.lean, below, beside, &cache);
      return plan::find_tier_floor(graph, step, *floor.lean, below, beside);
    };
    // Where nothing moves, which a policy does not leave open.
    const std::int64_t most =
        policy != nullptr ? std::numeric_limits<std::int64_t>::max() : floor.on_device_bytes;
    const auto least_with = [&](const plan::LowerTiers& below) {
      return std::min(floor_with(below).bytes, most);
    };
    floor.tiers = floor_with(room.below);
    floor.bytes = std::min(floor.tiers->bytes, most);
    // A policy takes all of its ways.
    std::vector<plan::MemoryWay> ways;
    if (policy == nullptr) ways = plan::ways_of(room.below);
    for (const plan::MemoryWay way : ways) {
      if (effort != Effort::All || ways.size() == 1) continue;
      floor.bytes_by_way[plan::name_of(way)] = least_with(plan::only(way, room.below));
      floor.bytes_without_way[plan::name_of(way)] = least_with(plan::without(way, room.below));
    }
    if (floor.bytes > room.budget_bytes)
      limit = limit_of_tiers(room.below, floor.bytes, least_with);
  }
  if (const std::int64_t copy = room.reserved_bytes; copy > 0) {
    floor.bytes += copy;
    if (floor.on_device_bytes > 0) floor.on_device_bytes += copy;
    for (auto* const by_way : {&floor.bytes_by_way, &floor.bytes_without_way}) {
      for (auto& [way, bytes] : *by_way) bytes += copy;
    }
    if (floor.bytes > budget_bytes)
      throw PlanError(floor.bytes, budget_bytes, detail_of_copy(copy));
  }
  plan::expect_budget(floor.bytes, budget_bytes, wanted, limit);
  return floor;
}

std::int64_t smallest_budget(const Setup& whole) {
  std::int64_t bytes = 0;
  for (int stage = 0; stage < whole.grid.shape().pipeline; ++stage) {
    bytes = std::max(bytes, floor_of_stage(whole, stage, std::numeric_limits<std::int64_t>::max(),
                                           whole.config.memory.plan, Effort::All)
                                .bytes);
  }
  return bytes;
}

namespace {

// What the planner answers for the tiers of the setup, whether anything moves or not.
Choice choose_on_tiers(const Setup& setup, const StageFloor& floor, std::int64_t budget_bytes,
                       const std::string& wanted, Effort effort) {
  Choice choice;
  const PlanRoom room = room_for_plan(setup, setup.model.graph, setup.step, budget_bytes);
  choice.reserved_bytes = room.reserved_bytes;
  if (setup.config.evaluation.batches > 0) add_validation(setup, room.budget_bytes, choice);
  OptionFolder cache(cache_folder());
  plan::TierRequest wish;
  wish.stage = {room.budget_bytes, wanted, choice.evaluation.peak_bytes, effort != Effort::All,
                &cache};
  wish.below = room.below;
  wish.copy_bytes = disk_copy_bytes(setup);
  if (effort == Effort::Few) wish.mixtures = 2;
  if (!choice.evaluation.instructions.empty()) wish.forward = &choice.evaluation;
  // Schedules are of nodes: those of another cut are none of this one.
  if (floor.lean && names_of(setup.model.graph) == floor.nodes) {
    wish.stage.lean = &*floor.lean;
    if (floor.tiers) wish.floor = &*floor.tiers;
  }
  plan::StagePlan stage = plan_stage(setup, wish, room.reserved_bytes);
  choice.program = std::move(stage.program);
  choice.prediction = std::move(stage.prediction);
  choice.candidates = std::move(stage.candidates);
  choice.least_seconds = stage.least_seconds;
  expect(place_validation(setup, room.budget_bytes, choice),
         "a plan leaves room for the validation of its rank");
  choice.minimum_budget_bytes = floor.bytes;
  return choice;
}

// Of the same stage where it has no disk, and no room for copies there.
StageFloor floor_without_disk(const Setup& setup, StageFloor floor) {
  floor.tiers.reset();
  if (floor.lean) floor.lean->bytes -= disk_copy_bytes(setup);
  return floor;
}

// `without` moves nothing that the other does not.
Choice faster_of(Choice without, Choice choice) {
  const double least_seconds = choice.least_seconds;
  if (without.prediction.seconds <= choice.prediction.seconds) std::swap(without, choice);
  for (const plan::StageCandidate& candidate : without.candidates)
    plan::note_candidate(candidate, choice.candidates);
  choice.least_seconds = least_seconds;
  return choice;
}

}  // namespace

Choice choose_as_cut(const Setup& setup, const StageFloor& floor, std::int64_t budget_bytes,
                     const std::string& wanted, Effort effort) {
  if (disk_copy_bytes(setup) == 0 || plan::offload_policy(wanted) != nullptr)
    return choose_on_tiers(setup, floor, budget_bytes, wanted, effort);
  // Where nothing moves the room for copies is the plan's.
  std::optional<Choice> without;
  try {
    without = choose_on_tiers(without_tier(Tier::Disk, setup), floor_without_disk(setup, floor),
                              budget_bytes, wanted, effort);
  } catch (const PlanError&) {
    return choose_on_tiers(setup, floor, budget_bytes, wanted, effort);
  }
  try {
    return faster_of(*without, choose_on_tiers(setup, floor, budget_bytes, wanted, effort));
  } catch (const PlanError&) {
    return std::move(*without);
  }
}

std::optional<Choice> choose_in_cut(const Setup& setup, const StageFloor& floor,
                                    std::int64_t budget_bytes, const std::string& wanted,
                                    Effort effort) {
  try {
    return choose_as_cut(setup, floor, budget_bytes, wanted, effort);
  } catch (const PlanError&) {
    return std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

Choice choose_program(const Setup& setup, std::int64_t budget_bytes) {
  return choose_program(setup, budget_bytes, setup.config.memory.plan, Effort::All);
}

Choice choose_program(const Setup& setup, std::int64_t budget_bytes, const std::string& wanted,
                      Effort effort) {
  const StageFloor floor = floor_of_stage(setup, stage_of(setup), budget_bytes, wanted, effort);
  return choose_as_cut(setup, floor, budget_bytes, wanted, effort);
}

Choice choice_of_same_stage(const Setup& given, plan::Program program, std::int64_t budget_bytes) {
  const Setup setup = has_disk_copies(program) ? given : without_tier(Tier::Disk, given);
  Choice choice;
  const PlanRoom room = room_for_plan(setup, setup.model.graph, setup.step, budget_bytes);
  choice.reserved_bytes = room.reserved_bytes;
  choice.prediction = plan::replay(program);
  program.tier(Tier::Device).budget_bytes = room.budget_bytes;
  program.peak_bytes = choice.prediction.peak_bytes;
  program.seconds = choice.prediction.seconds;
  choice.program = std::move(program);
  if (setup.config.evaluation.batches > 0) add_validation(setup, room.budget_bytes, choice);
  if (!place_validation(setup, room.budget_bytes, choice)) {
    throw ConfigError("memory.budget", fmt::format("{}", budget_bytes),
                      fmt::format("a validation needs {}", choice.evaluation.peak_bytes));
  }
  return choice;
}

Choice choice_of_given(const Setup& setup, plan::Program program, std::int64_t budget_bytes) {
  Choice choice = choice_of_same_stage(setup, std::move(program), budget_bytes);
  if (setup.config.evaluation.batches == 0) return choice;
  if (choice.evaluation.peak_bytes + choice.reserved_bytes > budget_bytes) {
    throw ConfigError(
        "memory.budget", fmt::format("{}", budget_bytes),
        fmt::format("a validation needs {}", choice.evaluation.peak_bytes + choice.reserved_bytes));
  }
  const auto lasting = [](const plan::Program& of) {
    std::map<std::string, std::int64_t> bytes;
    for (const auto& buffer : of.buffers) {
      if (buffer.live_at_start) bytes[buffer.name] = buffer.bytes;
    }
    return bytes;
  };
  if (lasting(choice.evaluation) != lasting(choice.program)) {
    throw ConfigError("--run-program", choice.program.name,
                      "keeps its parameters otherwise than grid.zero, grid.bucket and "
                      "train.precision say");
  }
  return choice;
}

}  // namespace garonne::train
