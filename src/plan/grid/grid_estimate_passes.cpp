// What the passes of a candidate take, and what its devices keep between them.
#include <algorithm>

#include "base/index.hpp"
#include "plan/grid/communicating.hpp"
#include "plan/grid/estimated_device.hpp"
#include "plan/grid/grid_estimate.hpp"
#include "plan/grid/pipeline_hosts.hpp"
#include "plan/model/group_links.hpp"
#include "plan/pipeline/one_stage.hpp"
#include "plan/step/launches.hpp"

namespace garonne::plan {

// As few blocks run again as the budget asks for.
GridEstimator::Kept GridEstimator::keep_within_budget(const Model& model, const Device& device,
                                                      const std::vector<PipelineOperation>& order,
                                                      std::int64_t held_bytes) const {
  std::vector<const BlockCost*> blocks;
  std::size_t options = 1;
  for (const auto& chunk : device.chunks) {
    for (int b = chunk.first; b < chunk.last; ++b) {
      blocks.push_back(&model.blocks[as_index(b)]);
      options = std::max(options, blocks.back()->options.size());
    }
  }
  const auto kept_at = [&](std::size_t index) {
    Kept kept;
    kept.again.resize(device.chunks.size());
    std::vector<std::int64_t> saved(device.chunks.size(), 0);
    std::int64_t remade = 0;
    std::size_t number = 0;
    for (std::size_t c = 0; c < device.chunks.size(); ++c) {
      saved[c] = device.chunks[c].sent_bytes;
      for (int b = device.chunks[c].first; b < device.chunks[c].last; ++b, ++number) {
        const BlockCost& block = *blocks[number];
        const BlockOption& option =
            block.options[option_at_index(index, number, blocks.size(), block.options.size())];
        saved[c] += block.input_bytes + option.saved_bytes;
        kept.again[c].device += option.again_seconds;
        kept.again[c].host += option.again_issue_seconds;
        kept.options.push_back(&option);
        remade = std::max(remade, block.options.front().saved_bytes - option.saved_bytes);
      }
    }
    kept.peak_bytes = held_bytes + remade + most_on_the_way(order, saved);
    return kept;
  };
  std::size_t least = 0;
  std::size_t most = (options - 1) * blocks.size();
  if (kept_at(0).peak_bytes <= budget_bytes_) most = 0;
  while (least < most) {
    const std::size_t middle = least + (most - least) / 2;
    if (kept_at(middle).peak_bytes <= budget_bytes_)
      most = middle;
    else
      least = middle + 1;
  }
  return kept_at(least);
}

// Of what comes into the block from another stage.
double GridEstimator::hop_seconds(const GridCandidate& candidate, const BlockCost& block,
                                  const Shape& shape) const {
  const MessageForm form =
      decided_message_form(step_.message_form, candidate.shape, cluster_.devices_per_node);
  if (form == MessageForm::Whole) return message_seconds(block.input_bytes, shape.hop);
  const std::int64_t parts = block.replicated_input_bytes / candidate.shape.tensor;
  const std::int64_t sent = block.input_bytes - block.replicated_input_bytes + parts;
  return message_seconds(sent, shape.hop) +
         collective_seconds("all-gather", block.replicated_input_bytes, candidate.shape.tensor,
                            shape.tensor);
}

std::vector<GridEstimator::Kept> GridEstimator::keep_within_budget(
    const GridCandidate& candidate, const Model& model, const std::vector<Device>& devices,
    const PipelineSchedule& schedule) const {
  std::vector<Kept> kept;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    kept.push_back(keep_within_budget(model, devices[r], schedule.order[r],
                                      held_bytes(candidate, devices[r])));
  }
  return kept;
}

GridEstimator::Passes GridEstimator::passes_of(const GridCandidate& candidate, Model& model,
                                               const std::vector<Device>& devices,
                                               const std::vector<Kept>& kept) {
  const Shape& shape = shape_of(candidate);
  Passes passes;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    const Device& device = devices[r];
    const double gathering = candidate.zero == 3 ? gather_seconds(candidate, device) /
                                                       static_cast<double>(device.chunks.size())
                                                 : 0;
    double backward = 0;
    for (std::size_t c = 0; c < device.chunks.size(); ++c) {
      const auto& chunk = device.chunks[c];
      const std::int64_t received =
          chunk.first > 0 ? model.blocks[as_index(chunk.first)].input_bytes : 0;
      const auto [with_forward, with_backward] =
          communicating(candidate, step_, shape.data,
                        {device.elements, device.tied.elements, device.chunks.size(),
                         received + chunk.sent_bytes});
      const double again = kept[r].again[c].device + with_backward;
      passes.costs.chunks.push_back({std::max(chunk.forward + with_forward, gathering),
                                     std::max(chunk.backward + again, gathering - chunk.weight),
                                     chunk.weight});
      if (candidate.shape.pipeline > 1 && cluster_.software.host_waits)
        wait_for_host(chunk.issue, kept[r].again[c].host, passes.costs.chunks.back());
      backward += chunk.backward + again + chunk.weight;
    }
    passes.backward.push_back(backward);
  }
  return passes;
}

void GridEstimator::add_messages(const GridCandidate& candidate, Model& model,
                                 const std::vector<Device>& devices, PipelineCosts& costs) {
  const Device::Chunk& last = devices.back().chunks[0];
  costs.hop_seconds =
      hop_seconds(candidate, model.blocks[as_index(last.first)], shape_of(candidate));
  if (cluster_.software.host_waits) send_before_going_on(schedule_of(candidate), costs);
}

PipelineCosts GridEstimator::pipeline_costs(const GridCandidate& candidate) {
  Model& model = model_of(candidate);
  const std::vector<Device> devices = devices_of(candidate, model);
  const auto kept = keep_within_budget(candidate, model, devices, schedule_of(candidate));
  PipelineCosts costs = passes_of(candidate, model, devices, kept).costs;
  add_messages(candidate, model, devices, costs);
  return costs;
}

}  // namespace garonne::plan
