#include "plan/grid/estimated_model.hpp"

#include "plan/pipeline/stage_cut.hpp"

namespace garonne::plan {

const std::vector<int>& EstimatedModel::firsts_of(int parts, const Software& software) {
  auto& found = firsts_[parts];
  if (!found.empty()) return found;
  std::vector<double> seconds;
  std::vector<bool> may_begin;
  for (const auto& block : blocks) {
    seconds.push_back(block.cut_seconds);
    may_begin.push_back(block.may_begin_part);
  }
  if (!software.balances_stages)
    seconds = equal_block_seconds(static_cast<int>(blocks.size()), software.counts_ends, parts);
  return found = balanced_blocks(seconds, may_begin, parts);
}

const std::vector<DeviceParameters>& EstimatedModel::parameters_of(
    const std::vector<PipelineRoute>& routes, const std::vector<int>& beginnings,
    bool over_tensor) {
  std::vector<int> key;
  for (const PipelineRoute& route : routes) {
    key.push_back(-1);
    for (const ChunkPlace& place : route) key.push_back(place.device);
  }
  auto& found = parameters_[key];
  if (found.empty()) found = device_parameters(blocks, routes, beginnings, over_tensor);
  return found;
}

}  // namespace garonne::plan
