#include "nn/model.hpp"

#include <functional>
#include <numeric>

#include "base/error.hpp"

namespace garonne::nn {

int ModelBuilder::add_input(const std::string& name, std::int64_t elements) {
  model_.graph.values.push_back(
      {name, declaration_.allocation(elements * 8), false, true, elements});
  return static_cast<int>(model_.graph.values.size()) - 1;
}

int ModelBuilder::add_field_input(const std::string& name, std::int64_t elements) {
  model_.graph.values.push_back({name, declaration_.tensor(elements), false, true, elements});
  model_.graph.values.back().is_field = true;
  return static_cast<int>(model_.graph.values.size()) - 1;
}

int ModelBuilder::add_parameter(const std::string& name, std::vector<std::int64_t> shape,
                                Initialisation initialisation, Box box) {
  plan::ParameterSpec parameter;
  parameter.name = name;
  parameter.elements =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  parameter.decays = shape.size() >= 2;
  model_.boxes.push_back(box.global.empty() ? whole_box(shape) : std::move(box));
  parameter.shape = std::move(shape);
  model_.graph.parameters.push_back(std::move(parameter));
  model_.initialisations.push_back(initialisation);
  return static_cast<int>(model_.graph.parameters.size()) - 1;
}

int ModelBuilder::add_node(const std::string& name, std::unique_ptr<Node> node,
                           std::vector<int> inputs, std::vector<int> parameters,
                           std::int64_t elements) {
  return append(name, std::move(node), std::move(inputs), std::move(parameters),
                declaration_.tensor(elements), elements);
}

int ModelBuilder::add_double_node(const std::string& name, std::unique_ptr<Node> node,
                                  std::vector<int> inputs, std::int64_t elements) {
  const int value = append(name, std::move(node), std::move(inputs), {},
                           declaration_.allocation(elements * 8), elements);
  model_.graph.values.back().is_double = true;
  return value;
}

int ModelBuilder::add_state_node(const std::string& name, std::unique_ptr<Node> node,
                                 std::vector<int> inputs, std::vector<int> parameters,
                                 std::int64_t elements) {
  const int value =
      append(name, std::move(node), std::move(inputs), std::move(parameters),
             declaration_.allocation(elements * state_bytes(declaration_.precision)), elements);
  model_.graph.values.back().is_state = true;
  return value;
}

void ModelBuilder::set_complex(int parameter) {
  plan::ParameterSpec& spec = model_.graph.parameters[static_cast<std::size_t>(parameter)];
  expect(spec.shape.back() == 2, spec.name + " has no pairs of numbers");
  spec.complex = true;
}

void ModelBuilder::set_replicated(int parameter, bool sums_over_tensor) {
  plan::ParameterSpec& spec = model_.graph.parameters[static_cast<std::size_t>(parameter)];
  spec.replicated = true;
  spec.sums_over_tensor = sums_over_tensor;
}

void ModelBuilder::set_uncut_replicated() {
  for (std::size_t p = 0; p < model_.boxes.size(); ++p) {
    const Box& box = model_.boxes[p];
    if (box == whole_box(box.global))
      set_replicated(static_cast<int>(p), /*sums_over_tensor=*/true);
  }
}

int ModelBuilder::add_loss(const std::string& name, std::unique_ptr<Node> node,
                           std::vector<int> inputs, std::vector<int> parameters) {
  model_.graph.loss = append(name, std::move(node), std::move(inputs), std::move(parameters),
                             declaration_.allocation(8), 1);
  return model_.graph.loss;
}

int ModelBuilder::append(const std::string& name, std::unique_ptr<Node> node,
                         std::vector<int> inputs, std::vector<int> parameters,
                         std::int64_t output_bytes, std::int64_t output_elements) {
  plan::NodeSpec spec = node->declare(declaration_);
  spec.name = name;
  spec.cost_key += std::string(" ") + precision_name(declaration_.precision);
  spec.block = block_;
  spec.inputs = std::move(inputs);
  spec.parameters = std::move(parameters);
  model_.graph.values.push_back({name, output_bytes, gradients_, false, output_elements});
  spec.output = static_cast<int>(model_.graph.values.size()) - 1;
  if (!gradients_) {
    spec.pins_inputs.clear();
    spec.pins_output = false;
    spec.private_slot_bytes.clear();
  }
  for (std::size_t i = 0; i < spec.pins_inputs.size(); ++i) {
    if (spec.pins_inputs[i]) spec.pinned_values.push_back(spec.inputs[i]);
  }
  if (spec.pins_output) spec.pinned_values.push_back(spec.output);
  model_.graph.nodes.push_back(std::move(spec));
  model_.nodes.push_back(std::move(node));
  return model_.graph.nodes.back().output;
}

Model cut_model(const Model& whole, const plan::StageCut& cut) {
  Model model;
  model.graph = cut.graph;
  for (const int n : cut.nodes)
    model.nodes.push_back(n < 0 ? nullptr : whole.nodes[static_cast<std::size_t>(n)]);
  for (const int p : cut.parameters) {
    model.initialisations.push_back(whole.initialisations[static_cast<std::size_t>(p)]);
    model.boxes.push_back(whole.boxes[static_cast<std::size_t>(p)]);
  }
  model.batch = whole.batch;
  model.sequence = whole.sequence;
  model.width = whole.width;
  model.rows = whole.rows;
  return model;
}

}  // namespace garonne::nn
