#include "plan/grid/device_parameters.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

#include "base/index.hpp"
#include "plan/step/launches.hpp"

namespace garonne::plan {
namespace {

struct BlockRange {
  int first = 0;
  int last = 0;
};

struct Used {
  const BlockParameter* parameter = nullptr;
  int node = -1;  // that completes it
  int block = -1;
};

std::vector<Used> used_on(const std::vector<BlockCost>& blocks,
                          const std::vector<BlockRange>& ranges,
                          std::vector<DeviceParameters::InBlock>& first_used) {
  std::vector<Used> used;
  std::map<int, std::size_t> place;  // by parameter
  for (const BlockRange& range : ranges) {
    for (int b = range.first; b < range.last; ++b) {
      DeviceParameters::InBlock& of_block = first_used.emplace_back();
      for (const BlockParameter& one : blocks[as_index(b)].parameters) {
        const auto [found, is_new] = place.try_emplace(one.parameter, used.size());
        if (is_new) {
          used.push_back({&one});
          ++(one.matrix ? of_block.matrices : of_block.vectors);
          of_block.elements += one.elements;
        }
        Used& here = used[found->second];
        if (here.node >= 0 || one.node < 0) continue;
        here.node = one.node;
        here.block = b;
      }
    }
  }
  return used;
}

}  // namespace

int DeviceParameters::InBlock::launches(const StepShape& step) const {
  return matrices * launches_of_training(step, true) + vectors * launches_of_training(step, false);
}

std::vector<DeviceParameters> device_parameters(const std::vector<BlockCost>& blocks,
                                                const std::vector<PipelineRoute>& routes,
                                                const std::vector<int>& firsts, bool over_tensor) {
  std::vector<std::vector<BlockRange>> ranges;
  for (const PipelineRoute& route : routes) {
    for (std::size_t part = 0; part < route.size(); ++part) {
      ranges.resize(std::max(ranges.size(), as_index(route[part].device) + 1));
      ranges[as_index(route[part].device)].push_back({firsts[part], firsts[part + 1]});
    }
  }
  std::vector<DeviceParameters> result(ranges.size());
  std::vector<std::vector<Used>> used;
  std::map<int, std::vector<int>> devices;  // by parameter
  for (std::size_t device = 0; device < ranges.size(); ++device) {
    used.push_back(used_on(blocks, ranges[device], result[device].first_used));
    for (const Used& one : used.back())
      devices[one.parameter->parameter].push_back(static_cast<int>(device));
  }
  // A model that nobody cuts has its own order of parameters, a stage that of their first uses.
  if (used.size() == 1) {
    std::sort(used[0].begin(), used[0].end(), [](const Used& a, const Used& b) {
      return a.parameter->parameter < b.parameter->parameter;
    });
  }
  for (std::size_t device = 0; device < used.size(); ++device) {
    std::vector<int> nodes;
    for (const Used& one : used[device]) nodes.push_back(one.node);
    for (const int k : completion_order(nodes)) {
      const Used& one = used[device][as_index(k)];
      const BlockParameter& parameter = *one.parameter;
      const std::vector<int>& copies = devices[parameter.parameter];
      if (copies.size() > 1) {
        const bool is_first = copies.front() == static_cast<int>(device);
        result[device].tied_to = is_first ? copies.back() : copies.front();
      }
      result[device].completed.push_back({parameter.elements, parameter.sides, parameter.complex,
                                          copies.size() > 1,
                                          over_tensor && parameter.sums_over_tensor, one.block});
    }
  }
  return result;
}

StepShape step_of(StepShape step, const GridCandidate& candidate) {
  step.data_group.assign(as_index(candidate.shape.data), 0);
  step.tensor_group.assign(as_index(candidate.shape.tensor), 0);
  step.zero = candidate.zero;
  step.bucket_bytes = step.tensor_bucket_bytes = candidate.bucket_bytes;
  return step;
}

}  // namespace garonne::plan
