#include "train/plans/saving_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/step/rank_program.hpp"
#include "plan/step/trained_layout.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/setup/available_memory.hpp"

namespace garonne::train {
namespace {

// The last checkpoint is waited for anyhow.
bool saves_beside_training(const RunConfig& config) {
  const auto& keys = config.checkpoint;
  return keys.saving != "synchronous" && keys.every > 0 && keys.every < config.train.steps;
}

bool reserves(const RunConfig& config) {
  return saves_beside_training(config) && config.checkpoint.saving == "asynchronous";
}

bool is_on_host(const Setup& setup) {
  return setup.declaration.device.kind != DeviceKind::Cpu;
}

std::vector<plan::Bucket> buckets_of(const plan::ModelGraph& graph, plan::StepShape step) {
  if (!plan::in_shards(step)) return {};
  step.gathers_ahead = 0;
  return plan::make_forward_program(graph, step, graph.loss).buckets;
}

// The first tensor rank writes what is equal on all of them.
std::int64_t largest_copy(const plan::ModelGraph& graph, const plan::StepShape& step,
                          const std::vector<plan::Bucket>& buckets) {
  std::int64_t largest = 0;
  for (int member = 0; member < static_cast<int>(step.data_group.size()); ++member)
    largest = std::max(largest, bytes_of_copy(graph, step, buckets, {member, 0, 0}));
  return largest;
}

// What the plan of a rank leaves of the memory in which the copy would be.
std::int64_t room_beside(const Setup& setup, const Choice& choice, std::int64_t budget_bytes) {
  if (!is_on_host(setup)) {
    const std::int64_t validation =
        choice.evaluation.instructions.empty() ? 0 : choice.evaluation_prediction.peak_bytes;
    return budget_bytes - std::max(choice.prediction.peak_bytes, validation);
  }
  const auto host = setup.below.tiers.find(Tier::Host);
  if (host == setup.below.tiers.end()) return std::numeric_limits<std::int64_t>::max();
  return host->second.budget_bytes - choice.prediction.of(Tier::Host).peak_bytes;
}

Saving saving_of_rank(const Setup& setup, std::int64_t copy_bytes, std::int64_t room_bytes) {
  Saving saving;
  if (!saves_beside_training(setup.config)) return saving;
  saving.on_host = is_on_host(setup);
  saving.copy_bytes = saving.largest_copy_bytes = copy_bytes;
  saving.missing_bytes = std::max<std::int64_t>(0, copy_bytes - room_bytes);
  saving.asynchronous = saving.missing_bytes == 0;
  return saving;
}

// Where "asynchronous" was asked for.
void expect_room_for_copy(const Setup& setup, const Saving& saving, std::int64_t room_bytes) {
  if (!reserves(setup.config) || saving.asynchronous) return;
  const std::int64_t copy = saving.copy_bytes;
  throw ConfigError(
      "checkpoint.saving", setup.config.checkpoint.saving,
      fmt::format("takes a copy of {} B ({}) a rank, for which {} leaves {} B; use \"auto\"", copy,
                  format_bytes(copy), saving.on_host ? "the memory of the host" : "the Program",
                  std::max<std::int64_t>(0, room_bytes)));
}

}  // namespace

std::int64_t bytes_of_copy(const plan::ModelGraph& graph, const plan::StepShape& step,
                           const std::vector<plan::Bucket>& buckets, const Coordinates& place) {
  const std::int64_t of_run = step.element_bytes.state;
  std::int64_t bytes = 0;
  // What all tensor ranks have the first of them writes.
  const auto writes = [&](const plan::ParameterSpec& parameter, bool of_whole) {
    return parameter.counted && (!(parameter.replicated || of_whole) || place.tensor == 0);
  };
  // `numbers_in`: how many of them are in a copy of what each rank has, or of its shard.
  const auto add = [&](const plan::ParameterSpec& parameter, const auto& numbers_in) {
    if (writes(parameter, false)) bytes += bytes_in_copy(numbers_in(StateBlocks()) * of_run);
    for (const StateSpec& state : step.optimizer_states) {
      if (writes(parameter, state.blocks.of_whole()))
        bytes += bytes_in_copy(numbers_in(state.blocks) * state.element_bytes(of_run));
    }
  };
  if (!plan::in_shards(step)) {
    const auto ranks = static_cast<int>(step.data_group.size());
    for (const plan::ParameterSpec& parameter : graph.parameters) {
      add(parameter, [&](const StateBlocks& blocks) {
        const auto [begin, end] =
            share_of(blocks.count(parameter.elements, parameter.sides()), place.data, ranks);
        return end - begin;
      });
    }
    return bytes;
  }
  for (const plan::Bucket& bucket : buckets) {
    for (const plan::ShardPiece& piece : plan::shard_pieces(bucket, place.data)) {
      const plan::ParameterSpec& parameter =
          graph.parameters[static_cast<std::size_t>(piece.parameter)];
      // What is beyond the parameter is padding.
      add(parameter, [&](const StateBlocks& blocks) {
        if (blocks.of_whole()) return piece.first == 0 ? blocks.count(0, parameter.sides()) : 0;
        const std::int64_t left = blocks.count(parameter.elements) - blocks.count(piece.first);
        return std::clamp<std::int64_t>(blocks.count(piece.elements), 0,
                                        std::max<std::int64_t>(0, left));
      });
    }
  }
  return bytes;
}

PlanRoom room_for_plan(const Setup& setup, const plan::ModelGraph& graph,
                       const plan::StepShape& step, std::int64_t budget_bytes) {
  PlanRoom room{budget_bytes, 0, setup.below};
  if (!reserves(setup.config)) return room;
  const std::int64_t copy = largest_copy(graph, step, buckets_of(graph, step));
  if (!is_on_host(setup)) {
    room.reserved_bytes = copy;
    room.budget_bytes -= copy;
  } else if (const auto host = room.below.tiers.find(Tier::Host); host != room.below.tiers.end()) {
    host->second.budget_bytes = std::max<std::int64_t>(0, host->second.budget_bytes - copy);
  }
  return room;
}

std::string detail_of_copy(std::int64_t reserved_bytes) {
  return fmt::format(
      "{} B ({}) of it are the copy of the state that checkpoint.saving = \"asynchronous\" writes "
      "checkpoints from; \"auto\" takes one only where there is room beside the plan",
      reserved_bytes, format_bytes(reserved_bytes));
}

Saving saving_of(const GridPlan& plan, std::int64_t budget_bytes) {
  Saving all;
  for (const PlannedStage& stage : plan.stages) {
    const plan::Program& program = stage.choice.program;
    const std::int64_t copy =
        largest_copy(stage.setup.model.graph, stage.setup.step, program.buckets);
    const std::int64_t room = room_beside(stage.setup, stage.choice, budget_bytes);
    const Saving one = saving_of_rank(stage.setup, copy, room);
    expect_room_for_copy(stage.setup, one, room);
    all.on_host = one.on_host;
    all.copy_bytes = all.largest_copy_bytes = std::max(all.copy_bytes, one.copy_bytes);
    all.missing_bytes = std::max(all.missing_bytes, one.missing_bytes);
  }
  all.asynchronous = all.copy_bytes > 0 && all.missing_bytes == 0;
  return all;
}

Saving agree_on_saving(const Setup& setup, const Choice& choice, const plan::Program& program,
                       std::int64_t budget_bytes, dist::Session& session) {
  Saving saving;
  std::int64_t copy = 0;
  session.agree([&] {
    copy = bytes_of_copy(setup.model.graph, setup.step, program.buckets, program.coordinates);
    std::int64_t room = room_beside(setup, choice, budget_bytes);
    if (is_on_host(setup) && !setup.below.tiers.contains(Tier::Host)) {
      room = available_memory(MemorySources::of_this_process(), session.ranks_on_node()).bytes;
      // Of an emulated device the memory is the host's.
      if (!setup.declaration.device.is_gpu()) room -= budget_bytes;
    }
    saving = saving_of_rank(setup, copy, room);
    expect_room_for_copy(setup, saving, room);
  });
  const auto all =
      session.all_reduce_max(std::vector{saving.missing_bytes, saving.largest_copy_bytes});
  saving.missing_bytes = all[0];
  saving.largest_copy_bytes = all[1];
  saving.checkpoint_bytes = session.all_reduce_sum(std::vector{copy})[0];
  saving.asynchronous = saves_beside_training(setup.config) && saving.missing_bytes == 0;
  return saving;
}

std::string describe_saving(const Saving& saving) {
  if (saving.asynchronous) {
    return fmt::format("saving    beside training, from a saved copy of {} a rank {}\n",
                       format_bytes(saving.largest_copy_bytes),
                       saving.on_host ? "in the memory of the host" : "within the budget");
  }
  if (saving.missing_bytes == 0) return "";
  return fmt::format(
      "saving    training waits for checkpoints: the copy to write them from takes {} a rank,\n"
      "          {} B ({}) more than this plan leaves of {}\n",
      format_bytes(saving.largest_copy_bytes), saving.missing_bytes,
      format_bytes(saving.missing_bytes), saving.on_host ? "the host's memory" : "the budget");
}

}  // namespace garonne::train
