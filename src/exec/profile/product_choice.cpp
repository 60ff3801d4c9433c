#include "exec/profile/product_choice.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <limits>
#include <set>

#include "exec/profile/timing.hpp"
#include "nn/element_type.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {

at::Tensor random_tensor(const Queue& queue, std::vector<std::int64_t> shape, at::ScalarType type) {
  return at::randn(shape, nn::tensor_options(queue, at::kFloat)).mul_(0.1).to(type);
}

std::vector<nn::ProductShape> product_shapes(const nn::Model& model, Precision precision) {
  std::vector<nn::ProductShape> shapes;
  std::set<std::string> seen;
  for (const auto& node : model.graph.nodes) {
    const bool multiplies =
        node.kind == "linear" || node.kind == "loss_head" || node.kind == "logits_head";
    if (!multiplies) continue;
    const auto& weight = model.graph.parameters[static_cast<std::size_t>(node.parameters[0])].shape;
    const auto& output = model.graph.values[static_cast<std::size_t>(node.output)];
    // A loss has none of its own.
    const std::int64_t rows =
        node.kind == "linear" ? output.shape[0] : model.batch * model.sequence;
    for (const auto form : {nn::ProductForm::Forward, nn::ProductForm::InputGradient,
                            nn::ProductForm::WeightGradient}) {
      if (node.kind == "logits_head" && form != nn::ProductForm::Forward) continue;
      const nn::ProductShape shape{form, rows, weight[0], weight[1], precision};
      if (seen.insert(nn::product_key(shape)).second) shapes.push_back(shape);
    }
  }
  return shapes;
}

void choose_product(const Queue& queue, const nn::ProductShape& shape,
                    const nn::Declaration& declaration, DeviceTier& tier, nn::Products& products,
                    double& roof) {
  const auto type = nn::compute_scalar_type(shape.precision);
  const at::Tensor x = random_tensor(queue, {shape.rows, shape.inputs}, type);
  const at::Tensor dy = random_tensor(queue, {shape.rows, shape.outputs}, type);
  const at::Tensor weight = random_tensor(queue, {shape.outputs, shape.inputs}, type);
  const at::Tensor target =
      at::empty({shape.outputs * shape.inputs},
                nn::tensor_options(queue, nn::state_scalar_type(shape.precision)));
  const double operations = 2.0 * static_cast<double>(shape.rows) *
                            static_cast<double>(shape.outputs) * static_cast<double>(shape.inputs);
  const nn::ProductTransients declared =
      nn::product_transients(declaration, shape.rows, shape.outputs, shape.inputs);
  const auto keeps_to_declared = [&](const nn::Products& candidate) {
    if (shape.form != nn::ProductForm::Forward) return true;
    tier.reset_peak();
    const at::Tensor y = candidate.forward(queue, x, weight, at::Tensor());
    return tier.peak_bytes() - tier.live_bytes() <= declared.forward_bytes;
  };
  double best = std::numeric_limits<double>::infinity();
  for (const nn::ProductLibrary* library : nn::product_candidates(shape)) {
    nn::Products candidate;
    candidate.choose(shape, *library);
    if (library->workspace_is_estimated() && !keeps_to_declared(candidate)) continue;
    const WorkSeconds taken = shortest_seconds(enough_seconds, [&] {
      switch (shape.form) {
        case nn::ProductForm::Forward:
          candidate.forward(queue, x, weight, at::Tensor());
          break;
        case nn::ProductForm::InputGradient:
          candidate.input_gradient(queue, dy, weight);
          break;
        case nn::ProductForm::WeightGradient:
          candidate.weight_gradient(queue, dy, x, target, false);
          break;
      }
    });
    roof = std::max(roof, operations / taken.seconds);
    if (taken.seconds >= best) continue;
    best = taken.seconds;
    products.choose(shape, *library);
  }
}

double fastest_product(const Queue& queue, const nn::Model& model, Precision precision,
                       const nn::Products& products, const MeasuredGpu& gpu) {
  const Stopwatch stopwatch = stopwatch_of(*gpu.device);
  double fastest = 0;
  for (const nn::ProductShape& shape : product_shapes(model, precision)) {
    if (shape.form != nn::ProductForm::Forward) continue;
    const at::ScalarType type = nn::compute_scalar_type(shape.precision);
    const at::Tensor x = random_tensor(queue, {shape.rows, shape.inputs}, type);
    const at::Tensor weight = random_tensor(queue, {shape.outputs, shape.inputs}, type);
    const WorkSeconds shortest = shortest_seconds(
        enough_seconds,
        [&] { static_cast<void>(products.forward(queue, x, weight, at::Tensor())); }, stopwatch);
    const double operations = 2.0 * static_cast<double>(shape.rows) *
                              static_cast<double>(shape.outputs) *
                              static_cast<double>(shape.inputs);
    fastest = std::max(fastest, operations / shortest.seconds);
  }
  return fastest;
}

}  // namespace garonne::exec
