#include "plan/grid/block_table.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "base/index.hpp"
#include "plan/pipeline/stage_cut.hpp"
#include "plan/stage/policy.hpp"
#include "plan/step/launches.hpp"

namespace garonne::plan {
namespace {

// Facts about the values of a graph that every block asks for.
struct Uses {
  explicit Uses(const ModelGraph& graph)
      : pinned(graph.values.size(), false), leaves(graph.values.size(), false) {
    for (const auto& node : graph.nodes) {
      for (const int value : node.pinned_values) pinned[as_index(value)] = true;
    }
    for (const int value : values_that_leave_blocks(graph)) leaves[as_index(value)] = true;
    if (graph.loss >= 0) leaves[as_index(graph.loss)] = true;
  }
  std::vector<bool> pinned;
  std::vector<bool> leaves;
};

bool runs_again(const ModelGraph& graph, const Uses& uses, int n, double threshold) {
  const NodeSpec& node = graph.nodes[as_index(n)];
  return !uses.leaves[as_index(node.output)] && !node.hands_over &&
         seconds_per_byte(graph, node) <= threshold;
}

BlockOption option_at(const ModelGraph& graph, const Uses& uses, std::pair<int, int> range,
                      double threshold) {
  BlockOption option;
  option.threshold = threshold;
  std::vector<bool> wanted(graph.values.size(), false);  // by a forward that runs again
  for (int n = range.second; n-- > range.first;) {
    const NodeSpec& node = graph.nodes[as_index(n)];
    std::int64_t record = 0;
    for (const std::int64_t slot : node.private_slot_bytes) record += slot;
    const bool read_again = uses.pinned[as_index(node.output)] || wanted[as_index(node.output)];
    if (!runs_again(graph, uses, n, threshold)) {
      option.saved_bytes += record;
      if (read_again && !uses.leaves[as_index(node.output)])
        option.saved_bytes += graph.values[as_index(node.output)].bytes;
      continue;
    }
    if (!read_again && record == 0) continue;
    option.again_seconds += node.forward.seconds;
    option.again_issue_seconds += node.forward.issue_seconds;
    for (const int input : node.inputs) wanted[as_index(input)] = true;
  }
  return option;
}

std::vector<BlockOption> options_of(const ModelGraph& graph, const Uses& uses,
                                    std::pair<int, int> range) {
  std::set<double> thresholds = {-1};
  for (int n = range.first; n < range.second; ++n)
    thresholds.insert(seconds_per_byte(graph, graph.nodes[as_index(n)]));
  std::vector<BlockOption> hull;
  for (const double threshold : thresholds) {
    const BlockOption next = option_at(graph, uses, range, threshold);
    if (!hull.empty() && next.saved_bytes >= hull.back().saved_bytes) continue;
    const auto slope = [](const BlockOption& a, const BlockOption& b) {
      return (b.again_seconds - a.again_seconds) /
             static_cast<double>(std::max<std::int64_t>(a.saved_bytes - b.saved_bytes, 1));
    };
    while (hull.size() > 1 && slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), next))
      hull.pop_back();
    hull.push_back(next);
  }
  return hull;
}

// `node`: that has a backward, or -1.
void use_parameter(const ParameterSpec& parameter, int p, int node,
                   std::vector<BlockParameter>& used) {
  const auto found =
      std::find_if(used.begin(), used.end(), [&](const auto& one) { return one.parameter == p; });
  if (found == used.end()) {
    used.push_back({p, -1, node, parameter.elements, parameter.sides(), parameter.shape.size() > 1,
                    parameter.complex, parameter.sums_over_tensor});
  } else if (found->node < 0) {
    found->node = node;
  }
}

}  // namespace

std::vector<BlockCost> block_costs(const ModelGraph& graph) {
  const Uses uses(graph);
  const auto ranges = block_ranges(graph);
  const std::vector<bool> may_begin = part_beginnings(graph);
  std::vector<int> first_block(graph.parameters.size(), -1);
  std::vector<BlockCost> blocks;
  for (std::size_t b = 0; b < ranges.size(); ++b) {
    BlockCost cost;
    cost.cut_seconds = balanced_seconds(graph, {ranges[b].first, ranges[b].second});
    std::set<int> made;
    std::set<int> inputs;
    for (int n = ranges[b].first; n < ranges[b].second; ++n) {
      const NodeSpec& node = graph.nodes[as_index(n)];
      std::int64_t working =
          std::max(node.backward.transient_bytes, node.forward_keep.transient_bytes) +
          graph.values[as_index(node.output)].bytes;
      for (const int input : node.inputs) {
        const ValueSpec& value = graph.values[as_index(input)];
        if (!value.differentiable) continue;
        working += value.bytes;
        if (!made.contains(input)) inputs.insert(input);
      }
      made.insert(node.output);
      cost.working_bytes = std::max(cost.working_bytes, working);
      const bool backward = graph.has_backward(node);
      for (const int p : node.parameters)
        use_parameter(graph.parameters[as_index(p)], p, backward ? n : -1, cost.parameters);
      const double backward_seconds = backward ? node.backward.seconds : 0;
      const double weight_seconds = backward ? node.backward_weight.seconds : 0;
      cost.forward_issue_seconds +=
          std::min(node.forward.issue_seconds, node.forward_keep.issue_seconds);
      if (backward) {
        cost.backward_issue_seconds +=
            node.backward.issue_seconds + node.backward_weight.issue_seconds;
      }
      if (node.communicates()) {
        cost.forward_link_seconds += node.forward_keep.seconds;
        cost.backward_link_seconds += backward_seconds;
        cost.forward_link_kernels += kernels_beside_meeting(node, true);
        cost.forward_link_launches += launches_of_meeting(node, true);
        if (backward) {
          cost.backward_link_kernels += kernels_beside_meeting(node, false);
          cost.backward_link_launches += launches_of_meeting(node, false);
        }
      } else {
        cost.forward_seconds += std::min(node.forward.seconds, node.forward_keep.seconds);
        cost.backward_seconds += backward_seconds;
        cost.weight_seconds += weight_seconds;
      }
    }
    for (const int v : inputs) {
      const ValueSpec& value = graph.values[as_index(v)];
      cost.input_bytes += value.bytes;
      if (value.replicated) cost.replicated_input_bytes += value.bytes;
    }
    for (BlockParameter& used : cost.parameters) {
      int& first = first_block[as_index(used.parameter)];
      used.earlier_block = first;
      if (first < 0) first = static_cast<int>(b);
    }
    cost.may_begin_part = may_begin[b];
    cost.options = options_of(graph, uses, ranges[b]);
    blocks.push_back(std::move(cost));
  }
  return blocks;
}

std::int64_t most_on_the_way(const std::vector<PipelineOperation>& order,
                             const std::vector<std::int64_t>& saved_bytes) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  if (order.empty()) {
    for (const std::int64_t bytes : saved_bytes) most += bytes;
  }
  for (const auto& operation : order) {
    if (operation.work == PipelineWork::Forward) now += saved_bytes[as_index(operation.chunk)];
    most = std::max(most, now);
    if (ends_activations(operation.work)) now -= saved_bytes[as_index(operation.chunk)];
  }
  return most;
}

std::size_t option_at_index(std::size_t index, std::size_t block, std::size_t blocks,
                            std::size_t options) {
  const std::size_t round = index / blocks;
  const bool ahead = block < index % blocks;
  return std::min(round + (ahead ? 1 : 0), options - 1);
}

BlockFamily::BlockFamily(const ModelGraph& graph) : graph_(graph), blocks_(block_costs(graph)) {
  std::size_t most = 1;
  for (const auto& block : blocks_) most = std::max(most, block.options.size());
  size_ = static_cast<int>((most - 1) * blocks_.size()) + 1;
}

std::size_t BlockFamily::option_of(std::size_t block, int index) const {
  return option_at_index(as_index(index), block, blocks_.size(), blocks_[block].options.size());
}

std::vector<std::int64_t> BlockFamily::saved_bytes(int index) const {
  const auto ranges = block_ranges(graph_);
  std::vector<std::int64_t> bytes(as_index(graph_.chunks()), 0);
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    bytes[as_index(graph_.nodes[as_index(ranges[b].first)].chunk)] +=
        blocks_[b].input_bytes + blocks_[b].options[option_of(b, index)].saved_bytes;
  }
  return bytes;
}

NodeSchedule BlockFamily::schedule(int index) const {
  const Uses uses(graph_);
  const auto ranges = block_ranges(graph_);
  Fates fates = keep_everything(graph_);
  for (std::size_t b = 0; b < ranges.size(); ++b) {
    const double threshold = blocks_[b].options[option_of(b, index)].threshold;
    for (int n = ranges[b].first; n < ranges[b].second; ++n) {
      if (runs_again(graph_, uses, n, threshold)) set_fate(graph_, n, {Fate::Recompute}, fates);
    }
  }
  return recompute_on_demand(graph_, fates);
}

}  // namespace garonne::plan
