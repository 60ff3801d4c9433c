#include "plan/model/model_graph.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "base/error.hpp"

namespace garonne::plan {

std::int64_t ValueSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

MatrixSides sides_of_shape(const std::vector<std::int64_t>& shape) {
  const std::int64_t elements =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  MatrixSides best{elements, 1};
  if (elements == 0) return best;
  std::int64_t rows = 1;
  for (std::size_t k = 1; k < shape.size(); ++k) {
    rows *= shape[k - 1];
    const MatrixSides sides{rows, elements / rows};
    if (k == 1 || sides.rows + sides.columns < best.rows + best.columns) best = sides;
  }
  return best;
}

MatrixSides ParameterSpec::sides() const {
  if (stored_sides != MatrixSides()) return stored_sides;
  return shape.empty() ? MatrixSides{elements, 1} : sides_of_shape(shape);
}

std::int64_t ModelGraph::parameter_elements() const {
  std::int64_t elements = 0;
  for (const auto& parameter : parameters) elements += parameter.elements;
  return elements;
}

namespace {

bool equal_costs(const OperationCost& a, const OperationCost& b) {
  return a.seconds == b.seconds && a.transient_bytes == b.transient_bytes;
}

void check_keep_options(const NodeSpec& node) {
  std::set<std::string> names;
  for (int k = 0; k < node.keep_options(); ++k) {
    const KeepOption& option = node.keep_option(k);
    expect(!option.name.empty() && names.insert(option.name).second,
           node.name + ": two ways to be kept have one name, or none");
    expect(k > 0 || option.exact, node.name + ": the first way to be kept is the exact one");
    for (const int value : option.pinned_values) {
      expect(value == node.output || std::count(node.inputs.begin(), node.inputs.end(), value) > 0,
             node.name + " pins what it neither reads nor makes");
    }
    // Input gradients of a split backward come from parameters alone, whatever was kept.
    expect(!node.splits_backward || equal_costs(option.backward, node.backward),
           node.name + ": the input part of its backward depends on how it was kept");
  }
}

}  // namespace

void check_model_graph(const ModelGraph& graph) {
  std::vector<bool> made(graph.values.size(), false);
  for (std::size_t i = 0; i < graph.values.size(); ++i) made[i] = graph.values[i].loaded;
  int block = 0;
  for (const auto& node : graph.nodes) {
    expect(node.block == block || node.block == block + 1,
           node.name + ": blocks must ascend by one");
    block = node.block;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      // Its two contributions to one gradient would come from one instruction.
      const bool twice = std::count(node.inputs.begin(), node.inputs.end(), node.inputs[i]) > 1;
      expect(!twice || !graph.values.at(static_cast<std::size_t>(node.inputs[i])).differentiable,
             node.name + " reads one differentiable value twice; copy it with a node of its own");
    }
    for (const int input : node.inputs) {
      expect(made.at(static_cast<std::size_t>(input)),
             node.name + " reads a value before it is made");
    }
    expect(node.output >= 0 && !made.at(static_cast<std::size_t>(node.output)),
           node.name + " makes a value a second time");
    made[static_cast<std::size_t>(node.output)] = true;
    expect(node.gradient_aliases.size() == node.inputs.size(),
           node.name + ": one alias flag an input");
    check_keep_options(node);
    expect(!node.communicates() ||
               (node.inputs.size() == 1 && node.parameters.empty() && node.pinned_values.empty() &&
                !node.has_record() && node.further_options.empty() && !node.splits_backward),
           node.name + " communicates, and does more than that");
    if (!graph.has_backward(node)) {
      expect(node.pinned_values.empty() && !node.has_record() && node.further_options.empty(),
             node.name + " keeps something for a backward that it has not");
    }
    for (const int parameter : node.parameters) {
      expect(parameter >= 0 && static_cast<std::size_t>(parameter) < graph.parameters.size(),
             node.name + " uses an unknown parameter");
    }
  }
}

}  // namespace garonne::plan
