#include "train/evaluation/parameter_placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/offload/paging.hpp"
#include "plan/offload/tier_selection.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/generator.hpp"
#include "train/setup/lower_tiers.hpp"

namespace garonne::train {
namespace {

// What lasts and may move: masters, which no pass reads, then the largest parameters.
std::vector<int> movable(const plan::Program& program) {
  std::vector<int> found;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const plan::Buffer& buffer = program.buffers[id];
    const bool is_parameter = buffer.kind == plan::BufferKind::Parameter ||
                              buffer.kind == plan::BufferKind::MasterParameter;
    if (is_parameter && buffer.live_at_start && buffer.live_at_end && buffer.bytes > 0)
      found.push_back(static_cast<int>(id));
  }
  std::stable_sort(found.begin(), found.end(), [&](int one, int other) {
    const auto key = [&](int id) {
      const plan::Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
      return std::pair(buffer.kind != plan::BufferKind::MasterParameter, -buffer.bytes);
    };
    return key(one) < key(other);
  });
  return found;
}

using Places = std::map<Tier, std::vector<int>>;

// The first `count` of them, each on the uppermost tier that has room.
Places places_of(const Setup& setup, const plan::Program& program, const std::vector<int>& buffers,
                 std::size_t count) {
  std::map<Tier, std::int64_t> taken;
  Places places;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t bytes = program.buffers[static_cast<std::size_t>(buffers[i])].bytes;
    for (auto tier = setup.below.tiers.begin(); tier != setup.below.tiers.end(); ++tier) {
      const std::int64_t wanted = round_up(bytes, tier->second.granularity);
      const bool has_room = taken[tier->first] + wanted <= tier->second.budget_bytes;
      if (!has_room && std::next(tier) != setup.below.tiers.end()) continue;
      taken[tier->first] += wanted;
      places[tier->first].push_back(buffers[i]);
      break;
    }
  }
  return places;
}

std::optional<plan::Program> with_pages(plan::Program program, const Places& places,
                                        const std::map<Tier, plan::TierLinks>& links,
                                        std::int64_t budget_bytes) {
  for (const auto& [tier, buffers] : places) {
    auto moved = plan::with_paging(std::move(program), buffers, tier, links.at(tier), budget_bytes);
    if (!moved) return std::nullopt;
    program = std::move(*moved);
  }
  return program;
}

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
  plan::Program pass = pass_of(setup);
  plan::set_tiers(setup.below.tiers, pass);
  const std::vector<int> buffers = movable(pass);
  const auto with = [&](std::size_t count, std::int64_t bytes) {
    return with_pages(pass, places_of(setup, pass, buffers, count), links_, bytes);
  };
  std::size_t too_few = 0;
  std::size_t enough = buffers.size();
  while (enough - too_few > 1) {
    const std::size_t middle = (too_few + enough) / 2;
    (with(middle, budget_bytes) ? enough : too_few) = middle;
  }
  program_ = with(enough, budget_bytes);
  // The passes that are asked for may be smaller than that.
  if (!program_) program_ = with(buffers.size(), plan::replay(pass).peak_bytes);
  expect(program_.has_value(), "a pass needs more than without its parameters below");
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
