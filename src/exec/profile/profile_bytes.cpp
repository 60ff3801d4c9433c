#include "exec/profile/profile_bytes.hpp"

#include <algorithm>
#include <numeric>

#include "exec/profile/product_choice.hpp"
#include "nn/element_type.hpp"
#include "plan/model/step_costs.hpp"

namespace garonne::exec {
namespace {

// Of what is made up: numbers are drawn as float32.
std::int64_t drawn_bytes(const nn::Declaration& declaration, std::int64_t elements) {
  return declaration.allocation(elements * static_cast<std::int64_t>(sizeof(float)));
}

std::int64_t table_bytes(const nn::Model& model, const nn::Declaration& declaration) {
  std::int64_t bytes = 0;
  for (const nn::ConstantTable& table : nn::constant_tables(model, declaration.precision))
    bytes += declaration.allocation(table.bytes);
  return bytes;
}

// A node with all that it is given, its output, what it keeps and what passes make.
std::int64_t node_bytes(const plan::ModelGraph& graph, const nn::Declaration& declaration,
                        const plan::NodeSpec& node, int keep_option) {
  const plan::KeepOption& kept = node.keep_option(keep_option);
  std::int64_t inputs = 0;
  std::int64_t drawn = 0;  // of the largest, before it has its type
  for (const int input : node.inputs) {
    const plan::ValueSpec& value = graph.values[static_cast<std::size_t>(input)];
    inputs += declaration.allocation(value.bytes);
    drawn = std::max(drawn, drawn_bytes(declaration, value.elements()));
  }
  std::int64_t parameters = 0;
  for (const int p : node.parameters) {
    const std::int64_t elements = graph.parameters[static_cast<std::size_t>(p)].elements;
    parameters += declaration.tensor(elements) +
                  declaration.allocation(elements * state_bytes(declaration.precision));
    drawn = std::max(drawn, drawn_bytes(declaration, elements));
  }
  const std::int64_t output =
      declaration.allocation(graph.values[static_cast<std::size_t>(node.output)].bytes);
  const std::int64_t record = std::accumulate(kept.private_slot_bytes.begin(),
                                              kept.private_slot_bytes.end(), std::int64_t{0});
  const std::int64_t forward =
      output + std::max(node.forward.transient_bytes, kept.forward_keep.transient_bytes);
  const std::int64_t backward =
      inputs + std::max({kept.backward.transient_bytes, kept.backward_weight.transient_bytes,
                         kept.in_place_transient_bytes.value_or(0)});
  // A backward is measured with the output, its gradient, two records, and gradients to add to.
  return inputs + parameters +
         std::max(drawn, 2 * output + 2 * record + inputs + std::max(forward, backward));
}

std::int64_t product_bytes(const nn::Declaration& declaration, const nn::ProductShape& shape) {
  const std::int64_t left = shape.rows * shape.inputs;
  const std::int64_t right = shape.outputs * shape.inputs;
  return declaration.tensor(left) + declaration.tensor(right) +
         std::max(drawn_bytes(declaration, std::max(left, right)),
                  declaration.tensor(shape.rows * shape.outputs));
}

std::int64_t step_bytes(const nn::Declaration& declaration, const optim::Optimizer& optimizer) {
  // Parameter, gradient, what is being made, and a copy in the type of products.
  const auto tensors = static_cast<std::int64_t>(optimizer.states().size()) + 4;
  const std::int64_t element_bytes = std::max(state_bytes(declaration.precision), std::int64_t{4});
  return tensors * declaration.allocation(plan::step_cost_elements * element_bytes);
}

}  // namespace

std::int64_t swept_bytes(const nn::Model& model, std::int64_t element_bytes,
                         std::int64_t most_bytes) {
  std::int64_t bytes = 0;
  for (const auto& value : model.graph.values) bytes += value.bytes;
  for (const auto& parameter : model.graph.parameters) {
    bytes += 2 * parameter.elements * element_bytes;  // and its gradient
  }
  return std::min(bytes, most_bytes);
}

std::int64_t node_profile_bytes(const nn::Model& model, const nn::Declaration& declaration) {
  std::int64_t most = 0;
  for (const plan::NodeSpec& node : model.graph.nodes) {
    if (node.communicates()) continue;
    for (int k = 0; k < node.keep_options(); ++k)
      most = std::max(most, node_bytes(model.graph, declaration, node, k));
  }
  const std::int64_t around =
      declaration.allocation(swept_bytes(model, declaration.element_bytes(), most_swept_on_gpu)) +
      table_bytes(model, declaration);
  most += around;
  for (const nn::ProductShape& shape : product_shapes(model, declaration.precision))
    most = std::max(most, product_bytes(declaration, shape));
  return most;
}

std::int64_t profile_bytes(const nn::Model& model, const nn::Declaration& declaration,
                           const optim::Optimizer& optimizer) {
  constexpr std::int64_t for_libraries = std::int64_t{256} << 20;
  const std::int64_t warm_up = 3 * drawn_bytes(declaration, warm_up_side * warm_up_side);
  const std::int64_t most = std::max(
      {node_profile_bytes(model, declaration), step_bytes(declaration, optimizer), warm_up});
  return most + most / 2 + for_libraries;
}

}  // namespace garonne::exec
