#include "train/setup/stage_passes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "base/index.hpp"
#include "base/wrapped.hpp"
#include "plan/program/passes_overlap.hpp"

namespace garonne::train {
namespace {

std::string stages_in_words(const std::vector<StagePasses>& stages, StagePasses which) {
  std::vector<std::size_t> found;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (stages[s] == which) found.push_back(s);
  }
  return fmt::format("{} {}", found.size() == 1 ? "stage" : "stages", fmt::join(found, ", "));
}

}  // namespace

std::string passes_that_overlap(const std::string& schedule) {
  return fmt::format(
      "of two passes that {} lets overlap one computes while the other communicates over its "
      "tensor "
      "ranks",
      schedule);
}

std::string reason_in_turn(plan::PassesInTurn why) {
  switch (why) {
    case plan::PassesInTurn::NoTensorRanks:
      return "what could overlap is communication over tensor ranks, and grid.tensor is 1";
    case plan::PassesInTurn::GathersParameters:
      return "with grid.zero = 3 parameters would be gathered at each change between them";
    case plan::PassesInTurn::DeviceWaits:
      return "software.overlap_collectives of the cluster is false";
    case plan::PassesInTurn::No:
      break;
  }
  return "memory.budget has no room for both";
}

StagePasses passes_of(const Setup& stage, const plan::Program& program) {
  if (plan::passes_overlap(program)) return StagePasses::Overlap;
  const auto& order = stage.step.pipeline.order;
  const bool may = std::any_of(order.begin(), order.end(),
                               [](const auto& operation) { return operation.overlaps_next; });
  return may ? StagePasses::InTurn : StagePasses::NoneToOverlap;
}

std::string passes_note(const Setup& whole, const std::vector<StagePasses>& stages, bool given) {
  const auto some = [&](StagePasses which) {
    return std::find(stages.begin(), stages.end(), which) != stages.end();
  };
  const bool overlap = some(StagePasses::Overlap);
  const bool in_turn = some(StagePasses::InTurn);
  if (!overlap && !in_turn) return "";
  const auto& keys = whole.config.grid;
  const std::string schedule = keys.schedule == "file" ? keys.schedule_file : keys.schedule;
  if (!in_turn) return below_table("note: " + passes_that_overlap(schedule));
  const plan::PassesInTurn why =
      plan::why_in_turn(whole.grid.shape().tensor, whole.grid.shape().data, whole.step.zero,
                        whole.step.passes_in_turn);
  const std::string reason =
      given && why == plan::PassesInTurn::No ? "so their Programs have it" : reason_in_turn(why);
  if (!overlap) {
    return below_table(fmt::format("note: passes that {} lets overlap run one after the other: {}",
                                   schedule, reason));
  }
  return below_table(fmt::format("note: {}; those of {} run one after the other: {}",
                                 passes_that_overlap(schedule),
                                 stages_in_words(stages, StagePasses::InTurn), reason));
}

std::string passes_note(const Setup& whole, const Setup& stage, const plan::Program& program,
                        bool given, dist::Session& session) {
  const std::vector<std::int64_t> of_ranks = session.all_gather(
      std::vector<std::int64_t>{static_cast<std::int64_t>(passes_of(stage, program))});
  std::vector<StagePasses> stages(as_index(whole.grid.shape().pipeline));
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const int of = whole.grid.coordinates_of(static_cast<int>(rank)).pipeline;
    stages[as_index(of)] = static_cast<StagePasses>(of_ranks[rank]);
  }
  return passes_note(whole, stages, given);
}

}  // namespace garonne::train
