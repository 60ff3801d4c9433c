#include "train/evaluation/parameter_placement.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/offload/forward_placement.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/replay.hpp"
#include "train/setup/lower_tiers.hpp"

namespace garonne::train {
namespace {

void expect_room(const Setup& setup, const plan::Program& program) {
  const plan::Prediction prediction = plan::replay(program);
  for (const auto& [tier, below] : setup.below.tiers) {
    const std::int64_t needed = prediction.of(tier).peak_bytes;
    if (needed <= below.budget_bytes) continue;
    throw ConfigError(fmt::format("memory.{}_budget", to_string(tier)),
                      format_bytes(below.budget_bytes),
                      fmt::format("is less than the {} of parameters that memory.budget has no "
                                  "room for: give more to one of them",
                                  format_bytes(needed)));
  }
}

}  // namespace

ParameterPlacement::ParameterPlacement(Setup& setup, std::int64_t budget_bytes)
    : budget_bytes_(budget_bytes) {
  const Setup without = without_lower_tiers(setup);
  const plan::ModelGraph& graph = setup.model.graph;
  const auto pass_of = [&](const Setup& one) {
    return plan::make_forward_program(graph, one.step, graph.loss);
  };
  if (setup.below.empty() || plan::replay(pass_of(without)).peak_bytes <= budget_bytes) {
    setup = without;
    const std::int64_t held = plan::static_bytes(graph, setup.step);
    if (held <= budget_bytes) return;
    throw PlanError(held, budget_bytes, "that is for the parameters alone" + advice());
  }
  for (const auto& [tier, below] : setup.below.tiers) links_[tier] = below.links;
  const plan::Program pass = pass_of(setup);
  program_ = plan::with_fewest_below(pass, setup.below.tiers, budget_bytes);
  expect_room(setup, *program_);
  if (plan::replay(*program_).static_bytes <= budget_bytes) return;
  throw PlanError(place(pass).peak_bytes, budget_bytes, "that is for a pass to the loss");
}

std::int64_t ParameterPlacement::bytes_below() const {
  if (!program_) return 0;
  const plan::Prediction prediction = plan::replay(*program_);
  return prediction.of(Tier::Host).static_bytes + prediction.of(Tier::Disk).static_bytes;
}

std::string ParameterPlacement::advice() const {
  if (program_) return "";
  return "; parameters may be on a disk: --memory.disk, beside a device with memory of its own on "
         "the host: --memory.host_budget, and of a model on tokens on other ranks: --grid.tensor, "
         "--grid.pipeline";
}

std::optional<plan::Program> ParameterPlacement::placed(plan::Program program,
                                                        std::int64_t budget_bytes) const {
  return plan::with_lasting_as(std::move(program), *program_, links_, budget_bytes);
}

plan::Program ParameterPlacement::place(plan::Program program) const {
  if (!program_) return program;
  if (auto found = placed(program, budget_bytes_)) return std::move(*found);
  std::int64_t too_little = budget_bytes_;
  std::int64_t enough = plan::replay(program).peak_bytes;
  while (enough - too_little > 1) {
    const std::int64_t middle = too_little + (enough - too_little) / 2;
    (placed(program, middle) ? enough : too_little) = middle;
  }
  return placed(std::move(program), enough).value();
}

}  // namespace garonne::train
