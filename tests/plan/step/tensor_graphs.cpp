#include "plan/step/tensor_graphs.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "base/index.hpp"

namespace garonne::plan::test {
namespace {

// Bytes beside the result of a pass that makes it anew.
std::int64_t taken(const NodeCollective& collective, std::int64_t made) {
  if (collective.kind.empty()) return 0;
  if (collective.buffer_bytes == 0) return collective.staging_bytes;
  return collective.buffer_bytes + std::max<std::int64_t>(0, collective.staging_bytes - made);
}

class Cutter {
 public:
  Cutter(const ModelGraph& graph, unsigned seed) : graph_(graph), random_(seed * 31 + 7) {}

  ModelGraph cut() {
    ModelGraph result = graph_;
    result.nodes.clear();
    std::map<int, int> now;  // by value: under which number it goes on
    const auto renumber = [&](std::vector<int>& values) {
      for (int& value : values) {
        if (now.contains(value)) value = now[value];
      }
    };
    const auto bytes_of = [&](int value) { return result.values[as_index(value)].bytes; };
    for (NodeSpec node : graph_.nodes) {
      renumber(node.inputs);
      renumber(node.pinned_values);
      // Gradients of other bytes cannot be one storage.
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (bytes_of(node.inputs[i]) == bytes_of(node.output)) continue;
        node.gradient_aliases[i] = false;
        if (!node.overwrites_gradient.empty()) node.overwrites_gradient[i] = false;
      }
      const int made = node.output;
      result.nodes.push_back(node);
      if (made == graph_.loss || up_to(99) < 40) continue;
      ValueSpec value = graph_.values[as_index(made)];
      value.name += ".met";
      NodeSpec meeting;
      meeting.name = node.name + ".meeting";
      meeting.kind = meeting.cost_key = "meeting";
      meeting.block = node.block;
      meeting.inputs = {made};
      meeting.output = static_cast<int>(result.values.size());
      make_collectives(meeting, value);
      result.values.push_back(value);
      result.nodes.push_back(meeting);
      now[made] = meeting.output;
    }
    return result;
  }

 private:
  int up_to(int most) { return static_cast<int>(random_() % static_cast<unsigned>(most + 1)); }
  std::int64_t bytes(int most) { return std::int64_t{64} * (1 + up_to(most)); }

  NodeCollective collective(const char* kind, bool apart) {
    const bool stages = std::string(kind) != "all-gather";
    return {kind, bytes(50), apart ? bytes(60) : 0, stages ? bytes(30) : 0};
  }

  void make_collectives(NodeSpec& node, ValueSpec& value) {
    const std::int64_t before = value.bytes;
    const int kind = up_to(5);
    node.gradient_aliases = {kind == 1};
    if (kind > 1) value.bytes = bytes(60);
    switch (kind) {
      case 0:
        node.overwrites_gradient = {true};
        node.backward_collective = collective("all-reduce", up_to(1) == 1);
        break;
      case 1:
        node.forward_collective = collective("all-reduce", up_to(1) == 1);
        break;
      case 2:
        node.forward_collective = collective("all-gather", false);
        node.backward_collective = collective("reduce-scatter", true);
        break;
      case 3:
        node.forward_collective = collective("reduce-scatter", true);
        node.backward_collective = collective("all-gather", false);
        break;
      case 4:
        node.forward_collective = collective("reduce-scatter", true);
        node.backward_collective = collective("all-gather", true);
        break;
      default:
        node.forward_collective = collective("all-gather", up_to(1) == 1);
        break;
    }
    const std::int64_t spare = up_to(2) == 0 ? bytes(20) : 0;
    node.forward.transient_bytes = taken(node.forward_collective, value.bytes);
    // Over the gradient that it is given a sum makes nothing new.
    node.backward.transient_bytes = taken(node.backward_collective, kind == 0 ? 0 : before);
    if (!node.forward_collective.kind.empty()) node.forward.transient_bytes += spare;
    if (!node.backward_collective.kind.empty()) node.backward.transient_bytes += spare;
    node.forward_keep = node.forward;
    node.forward.seconds = node.forward_keep.seconds = 0.5;
    node.backward.seconds = 0.75;
  }

  const ModelGraph& graph_;
  std::mt19937 random_;
};

NodeSpec meeting_node(const std::string& name, int block, int input, int output) {
  NodeSpec node;
  node.name = name;
  node.kind = node.cost_key = "meeting";
  node.block = block;
  node.inputs = {input};
  node.gradient_aliases = {false};
  node.output = output;
  return node;
}

}  // namespace

ModelGraph with_collectives(const ModelGraph& graph, unsigned seed) {
  return Cutter(graph, seed).cut();
}

ModelGraph cut_blocks(int blocks, std::int64_t elements) {
  const ModelGraph base = chain(blocks, 1);
  ModelGraph graph = base;
  graph.nodes.clear();
  graph.values.resize(1);  // tokens
  const std::int64_t bytes = elements * number_bytes(NumberType::Float32);
  const NodeCollective sum = {"all-reduce", bytes, 0, 64};
  const auto add_value = [&](const std::string& name, bool replicated) {
    graph.values.push_back({.name = name, .bytes = bytes, .shape = {elements}});
    graph.values.back().replicated = replicated;
    return static_cast<int>(graph.values.size()) - 1;
  };
  int stream = 0;
  for (NodeSpec node : base.nodes) {
    const bool loss = node.output == base.loss;
    if (node.block > 0) {
      NodeSpec enter = meeting_node(node.name + ".enter", node.block, stream,
                                    add_value("entered." + node.name, false));
      enter.backward_collective = sum;
      enter.backward.transient_bytes = taken(sum, 0);
      enter.overwrites_gradient = {true};
      stream = enter.output;
      graph.nodes.push_back(std::move(enter));
    }
    node.pinned_values = node.inputs = {stream};
    node.output = add_value(loss ? "loss" : "part." + node.name, false);
    const int made = node.output;
    const std::string name = node.name;
    const int block = node.block;
    graph.nodes.push_back(std::move(node));
    if (loss) {
      graph.loss = made;
      break;
    }
    NodeSpec leave = meeting_node(name + ".leave", block, made, add_value("stream." + name, true));
    leave.forward_collective = sum;
    leave.forward.transient_bytes = leave.forward_keep.transient_bytes = taken(sum, bytes);
    leave.gradient_aliases = {true};
    stream = leave.output;
    graph.nodes.push_back(std::move(leave));
  }
  return graph;
}

StepShape tensor_step_shape(int micro_batches, int data_ranks, std::int64_t bucket_bytes) {
  StepShape step = step_shape(micro_batches, data_ranks, bucket_bytes);
  step.world_group.clear();
  for (int rank = 0; rank < 2 * data_ranks; ++rank) step.world_group.push_back(rank);
  for (int& rank : step.data_group) rank *= 2;
  step.tensor_group = {0, 1};
  return step;
}

}  // namespace garonne::plan::test
