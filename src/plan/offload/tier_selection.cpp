#include "plan/offload/tier_selection.hpp"

#include <utility>

#include "plan/offload/bandwidth_bound.hpp"
#include "plan/offload/rotated_updates.hpp"
#include "plan/offload/tier_moves.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/passes_overlap.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/program_within.hpp"

namespace garonne::plan {
namespace {

// What is moved, and where updates are made, makes no difference to these; where some may run
// beside each other, nothing is known.
double pass_seconds(const Program& program) {
  if (passes_overlap(program)) return 0;
  double seconds = 0;
  for (const Instruction& one : program.instructions)
    if (is_forward(one.operation) || is_backward(one.operation)) seconds += one.seconds;
  return seconds;
}

// By place of the list: what other plans of the same ranks may hold at other times, or never.
std::vector<std::int64_t> bytes_for_others(const Program& program, const StepShape& step) {
  std::vector<std::int64_t> bytes;
  for (const BytesByKind& held : bytes_by_kind(program, Tier::Device)) {
    const auto of = [&](BufferKind kind) { return held[static_cast<std::size_t>(kind)]; };
    bytes.push_back(of(BufferKind::Communication) + of(BufferKind::GatheredParameter) +
                    (step.zero >= 2 ? of(BufferKind::Gradient) : 0));
  }
  return bytes;
}

std::pair<double, std::int64_t> key(const StagePlan& plan) {
  return {plan.prediction.seconds, plan.prediction.peak_bytes};
}

}  // namespace

void set_tiers(const std::map<Tier, LowerTier>& tiers, Program& program) {
  for (const auto& [tier, below] : tiers) {
    program.tier(tier).budget_bytes = below.budget_bytes;
    program.tier(tier).granularity = below.granularity;
  }
}

// A lean schedule in one of its shapes.
StagePlan lean_plan(const ModelGraph& graph, const CommunicationShape& shape,
                    const LeanPlans::Entry& entry) {
  StagePlan plan;
  ReplayedProgram leaner = make_leaner_program(graph, shape.step, entry.schedule);
  plan.program = std::move(leaner.program);
  plan.prediction = std::move(leaner.prediction);
  plan.program.name = entry.solver->name + shape.text;
  plan.program.peak_bytes = plan.prediction.peak_bytes;
  plan.program.seconds = plan.prediction.seconds;
  return plan;
}

// Of a Program and what the same rank runs with it, on the device.
std::int64_t whole_bytes(const Program& program, const Program* forward) {
  return std::max(program.peak_bytes, forward == nullptr ? 0 : forward->peak_bytes);
}

double least_seconds_of(const ModelGraph& graph, const StepShape& step, const TierRequest& wish) {
  Program program = make_training_program(
      graph, step,
      same_for_all(stage_solvers().front().schedules(graph).front(), step.micro_batches));
  if (passes_overlap(program)) return 0;
  set_tiers(wish.below.tiers, program);
  OffloadRequest request;
  if (step.world_group.size() > 1) {
    request.more_bytes = bytes_for_others(program, step);
    for (Instruction& instruction : program.instructions)
      if (!is_local_work(instruction)) instruction.seconds = 0;
  }
  if (wish.below.states && wish.below.tiers.contains(Tier::Host)) {
    // Updates that the host does take none of the device's time.
    for (Instruction& instruction : program.instructions) {
      if (instruction.operation == Operation::Update ||
          instruction.operation == Operation::SumTensors)
        instruction.seconds = 0;
    }
  }
  // What lasts and gradients come and go as if that took nothing.
  request.budget_bytes =
      wish.stage.budget_bytes + wish.copy_bytes + movable_bytes(program, wish.below);
  request.tiers = wish.below.tiers;
  request.least_bytes = wish.below.least_bytes;
  return least_step_seconds(program, request, &graph);
}

double TierSelection::seconds() const {
  return best_ ? best_->prediction.seconds : std::numeric_limits<double>::infinity();
}

void TierSelection::consider(StagePlan without, std::int64_t budget_bytes) {
  // Sums in another order.
  constexpr double slack = 1 - 1e-9;
  if (slack * pass_seconds(without.program) > std::min(useless_seconds_, seconds())) return;
  set_tiers(wish_.below.tiers, without.program);
  const std::string name = without.program.name;
  add(name, TierMoves(without.program, wish_.below, wish_.forward).within(budget_bytes));
}

void TierSelection::add(const std::string& name, std::vector<MovedProgram> all) {
  for (MovedProgram& moved : all) {
    StagePlan plan;
    plan.program = std::move(moved.program);
    plan.program.name = name + moved.how;
    plan.program.tier(Tier::Device).budget_bytes = wish_.stage.budget_bytes;
    plan.prediction = std::move(moved.prediction);
    std::optional<StagePlan> rotated = rotation_of(plan.program);
    choose(std::move(plan), moved.reserved_bytes);
    if (rotated) choose(std::move(*rotated), moved.reserved_bytes);
  }
}

// Where it has updates on the host, and the tiers have room for what is carried.
std::optional<StagePlan> TierSelection::rotation_of(const Program& program) const {
  if (!wish_.below.updates_beside_next_step) return std::nullopt;
  std::optional<Program> rotated = with_rotated_updates(program);
  if (!rotated) return std::nullopt;
  StagePlan beside;
  beside.program = std::move(*rotated);
  beside.program.name += ", updates beside the next step";
  beside.prediction = replay(beside.program);
  if (!fits_tiers(wish_.below.tiers, beside.prediction)) return std::nullopt;
  return beside;
}

void TierSelection::add(TierSelection later) {
  for (const StageCandidate& candidate : later.candidates_) note_candidate(candidate, candidates_);
  if (later.best_) take_if_better(std::move(*later.best_));
}

StagePlan TierSelection::take() {
  for (const StageCandidate& candidate : candidates_) note_candidate(candidate, best_->candidates);
  return std::move(*best_);
}

void TierSelection::choose(StagePlan plan, std::int64_t reserved_bytes) {
  const std::int64_t needed = std::max(plan.prediction.peak_bytes, reserved_bytes);
  const StageCandidate candidate{plan.program.name, plan.prediction.peak_bytes,
                                 plan.prediction.seconds, needed <= wish_.stage.budget_bytes};
  note_candidate(candidate, candidates_);
  if (candidate.fits) take_if_better(std::move(plan));
}

void TierSelection::take_if_better(StagePlan plan) {
  if (best_ && key(*best_) <= key(plan)) return;
  plan.candidates = best_ ? std::move(best_->candidates) : std::vector<StageCandidate>();
  best_ = std::move(plan);
}

}  // namespace garonne::plan
