#include "train/plans/stage_replay.hpp"

#include <cstddef>
#include <utility>

#include "plan/program/shared_disk.hpp"

namespace garonne::train {
namespace {

plan::SharedDisk shared_disk(const Setup& whole) {
  const auto stages = static_cast<std::size_t>(whole.grid.shape().pipeline);
  plan::SharedDisk disk;
  disk.ranks_on_node = whole.ranks_on_node;
  disk.latency_seconds = whole.disk.latency_seconds;
  disk.half_duplex = whole.disk.half_duplex;
  disk.alike.assign(stages, std::vector<int>(stages, 0));
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const int node = whole.grid.rank_of({0, static_cast<int>(stage), 0}) / whole.ranks_on_node;
    for (int rank = 0; rank < whole.grid.ranks(); ++rank) {
      if (rank / whole.ranks_on_node != node) continue;
      ++disk.alike[stage][static_cast<std::size_t>(whole.grid.coordinates_of(rank).pipeline)];
    }
  }
  return disk;
}

}  // namespace

std::vector<plan::Prediction> replay_stages(const Setup& whole, std::vector<plan::Program> programs,
                                            const plan::Overlap& overlap) {
  if (whole.ranks_on_node == 1 || !whole.below.tiers.contains(Tier::Disk))
    return plan::replay_pipeline(std::move(programs), overlap);
  return plan::replay_pipeline(std::move(programs), overlap, shared_disk(whole));
}

}  // namespace garonne::train
