#include "nn/model.hpp"

#include <functional>
#include <map>
#include <numeric>

#include "base/error.hpp"

namespace garonne::nn {

plan::ValueSpec ModelBuilder::value_of(const std::string& name, NumberType type,
                                       TensorShape shape) const {
  plan::ValueSpec value;
  value.name = name;
  value.type = type;
  value.shape = std::move(shape);
  value.bytes = declaration_.allocation(value.elements() * number_bytes(type));
  return value;
}

int ModelBuilder::add_loaded(plan::ValueSpec value) {
  value.differentiable = false;
  value.loaded = true;
  model_.graph.values.push_back(std::move(value));
  return static_cast<int>(model_.graph.values.size()) - 1;
}

int ModelBuilder::add_input(const std::string& name, TensorShape shape) {
  return add_loaded(value_of(name, NumberType::Int64, std::move(shape)));
}

int ModelBuilder::add_field_input(const std::string& name, TensorShape shape) {
  return add_loaded(value_of(name, compute_type(declaration_.precision), std::move(shape)));
}

namespace {

// What has one or two dimensions here is stored with more of them where heads are fused: they are
// rows.
MatrixSides stored_sides(const Box& box, std::size_t dimensions) {
  if (dimensions > 2) return plan::sides_of_shape(box.global);
  const std::int64_t elements = whole_box(box.global).elements();
  const std::int64_t columns = dimensions == 2 ? box.global.back() : 1;
  return {columns == 0 ? 0 : elements / columns, columns};
}

}  // namespace

int ModelBuilder::add_parameter(const std::string& name, TensorShape shape,
                                Initialisation initialisation, Box box) {
  plan::ParameterSpec parameter;
  parameter.name = name;
  parameter.elements =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  parameter.decays = shape.size() >= 2;
  model_.boxes.push_back(box.global.empty() ? whole_box(shape) : std::move(box));
  parameter.stored_sides = stored_sides(model_.boxes.back(), shape.size());
  parameter.shape = std::move(shape);
  model_.graph.parameters.push_back(std::move(parameter));
  model_.initialisations.push_back(initialisation);
  return static_cast<int>(model_.graph.parameters.size()) - 1;
}

int ModelBuilder::add_node(const std::string& name, std::unique_ptr<Node> node,
                           std::vector<int> inputs, std::vector<int> parameters,
                           TensorShape shape) {
  return append(name, std::move(node), std::move(inputs), std::move(parameters),
                compute_type(declaration_.precision), std::move(shape));
}

int ModelBuilder::add_double_node(const std::string& name, std::unique_ptr<Node> node,
                                  std::vector<int> inputs, TensorShape shape) {
  return append(name, std::move(node), std::move(inputs), {}, NumberType::Float64,
                std::move(shape));
}

int ModelBuilder::add_state_node(const std::string& name, std::unique_ptr<Node> node,
                                 std::vector<int> inputs, std::vector<int> parameters,
                                 TensorShape shape) {
  return append(name, std::move(node), std::move(inputs), std::move(parameters),
                state_type(declaration_.precision), std::move(shape));
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

void ModelBuilder::set_value_replicated(int value) {
  model_.graph.values[static_cast<std::size_t>(value)].replicated = true;
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
                             NumberType::Float64, {});
  return model_.graph.loss;
}

int ModelBuilder::append(const std::string& name, std::unique_ptr<Node> node,
                         std::vector<int> inputs, std::vector<int> parameters, NumberType type,
                         TensorShape shape) {
  plan::NodeSpec spec = node->declare(declaration_);
  spec.name = name;
  spec.cost_key += std::string(" ") + precision_name(declaration_.precision);
  // Other seconds and other bits: neither profiles nor Programs of one are for the other.
  if (declaration_.products == ProductRounding::Tf32) spec.cost_key += " tf32";
  spec.block = block_;
  spec.inputs = std::move(inputs);
  spec.parameters = std::move(parameters);
  plan::ValueSpec output = value_of(name, type, std::move(shape));
  output.differentiable = gradients_;
  model_.graph.values.push_back(std::move(output));
  spec.output = static_cast<int>(model_.graph.values.size()) - 1;
  if (!gradients_) {
    spec.pins_inputs.clear();
    spec.pins_output = false;
    spec.private_slot_bytes.clear();
    spec.further_options.clear();
  }
  for (int k = 0; k < spec.keep_options(); ++k) {
    plan::KeepOption& kept = spec.keep_option(k);
    for (std::size_t i = 0; i < kept.pins_inputs.size(); ++i) {
      if (kept.pins_inputs[i]) kept.pinned_values.push_back(spec.inputs[i]);
    }
    if (kept.pins_output) kept.pinned_values.push_back(spec.output);
  }
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
  model.rows = whole.rows;
  return model;
}

std::vector<ConstantTable> constant_tables(const Model& model, Precision precision) {
  std::map<std::string, ConstantTable> by_name;
  for (const auto& node : model.nodes) {
    if (!node) continue;
    for (ConstantTable& table : node->tables(precision)) {
      const auto [known, fresh] = by_name.emplace(table.name, table);
      expect(fresh || known->second.bytes == table.bytes, "two tables are called " + table.name);
    }
  }
  std::vector<ConstantTable> tables;
  for (auto& [name, table] : by_name) tables.push_back(std::move(table));
  return tables;
}

}  // namespace garonne::nn
