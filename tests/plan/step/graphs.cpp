#include "plan/step/graphs.hpp"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <stdexcept>

#include "plan/stage/stage_solver.hpp"

namespace garonne::plan::test {
namespace {

int add_value(ModelGraph& graph, const std::string& name, std::int64_t bytes, bool loaded = false) {
  graph.values.push_back({name, bytes, !loaded, loaded});
  return static_cast<int>(graph.values.size()) - 1;
}

int add_parameter(ModelGraph& graph, std::int64_t elements) {
  ParameterSpec parameter;
  parameter.name = "parameter." + std::to_string(graph.parameters.size());
  parameter.shape = {elements};
  parameter.elements = elements;
  graph.parameters.push_back(parameter);
  return static_cast<int>(graph.parameters.size()) - 1;
}

// A node that pins and keeps nothing yet.
NodeSpec plain_node(const std::string& name, int block, std::vector<int> inputs, int output) {
  NodeSpec node;
  node.name = name;
  node.kind = "test";
  node.cost_key = name;
  node.block = block;
  node.gradient_aliases.assign(inputs.size(), false);
  node.adds_in_place.assign(inputs.size(), false);
  node.inputs = std::move(inputs);
  node.output = output;
  node.forward.seconds = 1;
  node.forward_keep.seconds = 1.25;
  node.backward.seconds = 2;
  return node;
}

}  // namespace

ModelGraph chain(int blocks, int nodes_a_block) {
  ModelGraph graph;
  int value = add_value(graph, "tokens", 128, true);
  int number = 0;
  for (int block = 0; block < blocks; ++block) {
    for (int i = 0; i < nodes_a_block; ++i, ++number) {
      const int output = add_value(graph, "value." + std::to_string(number), 4096);
      NodeSpec node = plain_node("node." + std::to_string(number), block, {value}, output);
      node.parameters = {add_parameter(graph, 10)};
      node.pinned_values = {value};
      node.private_slot_bytes = {1024, 64};
      node.forward.transient_bytes = node.forward_keep.transient_bytes = 256;
      node.backward.transient_bytes = 512;
      graph.nodes.push_back(node);
      value = output;
    }
  }
  graph.loss = add_value(graph, "loss", 64);
  NodeSpec loss = plain_node("loss", blocks, {value}, graph.loss);
  loss.pinned_values = {value};
  graph.nodes.push_back(loss);
  return graph;
}

ModelGraph random_graph(unsigned seed) {
  std::mt19937 generator(seed);
  const auto up_to = [&](int most) {
    return static_cast<int>(generator() % static_cast<unsigned>(most + 1));
  };
  const auto chance = [&](int percent) { return up_to(99) < percent; };
  const auto bytes = [&](int most) { return std::int64_t{64} * (1 + up_to(most)); };

  ModelGraph graph;
  const int tokens = add_value(graph, "tokens", bytes(10), true);
  const int targets = add_value(graph, "targets", bytes(10), true);
  const int shared = add_parameter(graph, 1 + up_to(200));
  // The width that a residual stream keeps, so that gradients of equal bytes can alias.
  const std::int64_t width = bytes(60);
  std::vector<int> made;
  int number = 0;
  const int blocks = 1 + up_to(5);
  for (int block = 0; block < blocks; ++block) {
    const int count = 1 + up_to(5);
    for (int i = 0; i < count; ++i, ++number) {
      std::vector<int> inputs = {made.empty() ? tokens : made.back()};
      // An earlier value is read again, perhaps across blocks.
      if (made.size() > 1 && chance(45)) {
        inputs.push_back(made[as_index(up_to(static_cast<int>(made.size()) - 2))]);
        if (chance(50)) std::swap(inputs[0], inputs[1]);
      }
      const int output =
          add_value(graph, "value." + std::to_string(number), chance(60) ? width : bytes(60));
      NodeSpec node = plain_node("node." + std::to_string(number), block, inputs, output);
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        const bool same_bytes =
            graph.values[as_index(inputs[k])].bytes == graph.values[as_index(output)].bytes;
        node.gradient_aliases[k] = same_bytes && inputs[k] != tokens && chance(40);
        node.adds_in_place[k] = !node.gradient_aliases[k] && chance(50);
        if (chance(50)) node.pinned_values.push_back(inputs[k]);
      }
      if (chance(30)) node.adds_in_place.clear();
      node.overwrites_gradient.assign(inputs.size(), false);
      if (inputs[0] != tokens &&
          graph.values[as_index(inputs[0])].bytes == graph.values[as_index(output)].bytes) {
        node.overwrites_gradient[0] = !node.gradient_aliases[0] && number % 2 == 0;
      }
      if (chance(25)) node.pinned_values.push_back(output);
      for (int slot = up_to(2); slot > 0; --slot) node.private_slot_bytes.push_back(bytes(30));
      const bool in_one = chance(20);
      if (number == 0) node.parameters = {shared};
      for (int k = up_to(2); k > 0; --k)
        node.parameters.push_back(add_parameter(graph, 1 + up_to(300)));
      node.forward.transient_bytes = bytes(20);
      node.forward_keep.transient_bytes = bytes(20);
      node.backward.transient_bytes = bytes(40);
      if (number % 3 == 0) node.in_place_transient_bytes = bytes(40);
      // Input gradients from parameters alone: nothing that the forward keeps.
      node.splits_backward =
          node.private_slot_bytes.empty() && !in_one && (number + static_cast<int>(seed)) % 3 != 0;
      if (node.splits_backward) {
        node.backward_weight.seconds = 1;
        node.backward_weight.transient_bytes = node.backward.transient_bytes / 128 * 64;
      }
      graph.nodes.push_back(node);
      made.push_back(output);
    }
  }
  graph.loss = add_value(graph, "loss", 64);
  NodeSpec loss = plain_node("loss", blocks, {made.back(), targets}, graph.loss);
  loss.pinned_values = {made.back()};
  loss.private_slot_bytes = {bytes(100)};
  loss.parameters = {shared};
  graph.nodes.push_back(loss);
  return graph;
}

ModelGraph without_gradients(ModelGraph graph, int nodes) {
  std::vector<int> left;
  for (int n = 0; n < nodes; ++n) {
    NodeSpec& node = graph.nodes[as_index(n)];
    graph.values[as_index(node.output)].differentiable = false;
    node.pinned_values.clear();
    node.private_slot_bytes.clear();
    node.further_options.clear();
    left.insert(left.end(), node.parameters.begin(), node.parameters.end());
  }
  // As in a rollout: the nodes without gradients use parameters of those that have them.
  std::vector<int>& next = graph.nodes[as_index(nodes)].parameters;
  for (const int parameter : left) {
    if (std::find(next.begin(), next.end(), parameter) == next.end()) next.push_back(parameter);
  }
  return graph;
}

Fates random_fates(const ModelGraph& graph, std::mt19937& random) {
  Fates fates = keep_everything(graph);
  const auto any = [&] { return random() % 2 == 0 ? Fate::Keep : Fate::Recompute; };
  for (Fate& fate : fates.values) fate = any();
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const NodeSpec& node = graph.nodes[n];
    fates.records[n].fate = any();
    if (node.keep_options() == 1) continue;
    do {
      fates.records[n].option =
          static_cast<int>(random() % static_cast<unsigned>(node.keep_options()));
    } while (!node.keep_option(fates.records[n].option).exact);
  }
  return fates;
}

std::vector<std::pair<std::string, NodeSchedule>> policy_schedules(const ModelGraph& graph) {
  std::vector<std::pair<std::string, NodeSchedule>> all;
  for (const auto& policy : stage_solvers()) {
    if (!policy.schedules) continue;
    for (auto& schedule : policy.schedules(graph)) all.emplace_back(policy.name, schedule);
  }
  return all;
}

NodeSchedule schedule_of(const ModelGraph& graph, const std::string& policy) {
  for (const auto& [name, schedule] : policy_schedules(graph)) {
    if (name == policy) return schedule;
  }
  throw std::out_of_range("no policy " + policy);
}

bool whole_sweep() {
  return std::getenv("GARONNE_WHOLE_SWEEPS") != nullptr;
}

StepShape step_shape(int micro_batches, int ranks, std::int64_t bucket_bytes) {
  StepShape step;
  step.micro_batches = micro_batches;
  step.bucket_bytes = bucket_bytes;
  step.optimizer_states = {{.name = "first_moment"}, {.name = "second_moment"}};
  for (int rank = 0; rank < ranks; ++rank) step.data_group.push_back(rank);
  step.world_group = step.data_group;
  return step;
}

}  // namespace garonne::plan::test
