#include "train/setup/communicators.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "nn/model_kind.hpp"
#include "train/setup/pipeline_schedule.hpp"

namespace garonne::train {
namespace {

// Of the schedule that is asked for; one that cannot be made is refused later.
int chunks_of(const RunConfig& config) {
  Setup asked;
  asked.config = config;
  asked.step.micro_batches = static_cast<int>(micro_batches_per_rank(config));
  try {
    return pipeline_schedule_of(asked).chunks;
  } catch (const ConfigError&) {
    return 1;
  }
}

}  // namespace

std::vector<dist::NcclGroup> nccl_groups(const Grid& grid, const plan::PipelinePlace& place,
                                         int rank) {
  std::vector<dist::NcclGroup> groups;
  const auto add = [&](int members) -> dist::NcclGroup& {
    groups.push_back({.members = members, .channels = dist::nccl_channels(members)});
    return groups.back();
  };
  add(static_cast<int>(grid.group(Axis::Data, rank).size()));
  add(static_cast<int>(grid.group(Axis::Tensor, rank).size()));
  dist::NcclGroup& pipeline = add(static_cast<int>(grid.group(Axis::Pipeline, rank).size()));
  pipeline.all_to_all = place.lanes.empty();
  const int member = grid.coordinates_of(rank).pipeline;
  pipeline.lanes =
      static_cast<int>(std::count_if(place.lanes.begin(), place.lanes.end(), [&](const auto& lane) {
        return lane.from == member || lane.to == member;
      }));
  if (!place.tied_group.empty()) add(static_cast<int>(place.tied_group.size()));
  add(grid.ranks()).channels = dist::nccl_world_channels;
  return groups;
}

std::string transport_on_gpus(bool any_shared, bool has_nccl) {
  return any_shared || !has_nccl ? "mpi" : "nccl";
}

std::int64_t communicator_bytes(const RunConfig& config) {
  const auto stages = static_cast<int>(config.grid.pipeline);
  const auto add = [](std::int64_t members) {
    const auto count = static_cast<int>(members);
    return dist::NcclGroup{.members = count, .channels = dist::nccl_channels(count)};
  };
  std::vector<dist::NcclGroup> groups = {add(config.grid.data), add(config.grid.tensor)};
  if (stages > 1) {
    dist::NcclGroup pipeline = add(stages);
    pipeline.all_to_all = false;
    const bool fields = nn::model_kind(config.model.kind).learns_from == nn::LearnsFrom::Fields;
    const int values = fields ? 3 : 1;
    const int chunks = chunks_of(config);
    const int neighbours = stages == 2 && chunks == 1 ? 1 : 2;
    pipeline.lanes = 2 * values * chunks * neighbours;
    groups.push_back(pipeline);
    groups.push_back(add(2));  // of tied parameters
  }
  dist::NcclGroup world = add(config.grid.data * config.grid.pipeline * config.grid.tensor);
  world.channels = dist::nccl_world_channels;
  groups.push_back(world);
  return dist::nccl_bytes(groups);
}

std::int64_t communicator_bytes(const Setup& whole, int rank) {
  if (whole.grid.ranks() == 1) return 0;
  if (whole.grid.shape().pipeline == 1)
    return dist::nccl_bytes(nccl_groups(whole.grid, whole.step.pipeline, rank));
  const int stage = whole.grid.coordinates_of(rank).pipeline;
  return dist::nccl_bytes(nccl_groups(whole.grid, declared_stage(whole, stage).place, rank));
}

std::int64_t most_communicator_bytes(const Setup& whole) {
  std::int64_t most = 0;
  for (int stage = 0; stage < whole.grid.shape().pipeline; ++stage)
    most = std::max(most, communicator_bytes(whole, whole.grid.rank_of({0, stage, 0})));
  return most;
}

void expect_room_beside_nccl(const BesideNccl& memory) {
  if (memory.wanted_bytes <= memory.free_bytes || memory.taken_bytes <= memory.left_for_bytes)
    return;
  throw ConfigError(
      "memory.budget", "",
      fmt::format("{} are wanted of the device and {} are free: NCCL has taken {} for the groups "
                  "of this grid, {} more than was left for it. Lower memory.budget by as much, or "
                  "set NCCL_BUFFSIZE or NCCL_MAX_CTAS lower",
                  format_bytes(memory.wanted_bytes), format_bytes(memory.free_bytes),
                  format_bytes(memory.taken_bytes),
                  format_bytes(memory.taken_bytes - memory.left_for_bytes)));
}

}  // namespace garonne::train
