#include "exec/profile/product_choice.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>

#include "exec/profile/timing.hpp"
#include "nn/element_type.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {
namespace {

// What one product reads, and no more: logits may fill the device. Undefined is what it does not
// read.
struct ProductOperands {
  ProductOperands(const Queue& queue, const nn::ProductShape& shape) {
    const auto made = [&](std::initializer_list<std::int64_t> sizes) {
      return at::empty(sizes, nn::tensor_options(queue, nn::compute_scalar_type(shape.precision)))
          .normal_(0, 0.1);
    };
    const bool forward = shape.form == nn::ProductForm::Forward;
    const bool of_weights = shape.form == nn::ProductForm::WeightGradient;
    if (forward || of_weights) x = made({shape.rows, shape.inputs});
    if (!forward) dy = made({shape.rows, shape.outputs});
    if (!of_weights) weight = made({shape.outputs, shape.inputs});
    if (forward && shape.bias) bias = made({shape.outputs});
    if (!of_weights) return;
    target = at::empty({shape.outputs * shape.inputs},
                       nn::tensor_options(queue, nn::state_scalar_type(shape.precision)));
  }

  at::Tensor x, dy, weight, bias, target;
};

}  // namespace

at::Tensor random_tensor(const Queue& queue, std::vector<std::int64_t> shape, at::ScalarType type) {
  return at::randn(shape, nn::tensor_options(queue, at::kFloat)).mul_(0.1).to(type);
}

std::vector<nn::ProductShape> product_shapes(const nn::Model& model, Precision precision) {
  std::vector<nn::ProductShape> shapes;
  std::map<std::string, std::size_t> seen;  // where in `shapes`
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
      const auto [place, fresh] = seen.emplace(nn::product_key(shape), shapes.size());
      if (fresh) shapes.push_back(shape);
      const bool bias = form == nn::ProductForm::Forward && node.parameters.size() > 1;
      shapes[place->second].bias = shapes[place->second].bias || bias;
    }
  }
  return shapes;
}

void choose_product(const Queue& queue, const nn::ProductShape& shape,
                    const nn::Declaration& declaration, DeviceTier& tier, nn::Products& products,
                    double& roof, const MeasuredGpu* gpu) {
  const Stopwatch stopwatch = gpu == nullptr ? host_seconds : stopwatch_of(*gpu->device);
  const ProductOperands of(queue, shape);
  const double operations = 2.0 * static_cast<double>(shape.rows) *
                            static_cast<double>(shape.outputs) * static_cast<double>(shape.inputs);
  const nn::ProductTransients declared =
      nn::product_transients(declaration, shape.rows, shape.outputs, shape.inputs);
  const auto keeps_to_declared = [&](const nn::Products& candidate) {
    if (shape.form != nn::ProductForm::Forward) return true;
    tier.reset_peak();
    const at::Tensor y = candidate.forward(queue, of.x, of.weight, of.bias);
    return tier.peak_bytes() - tier.live_bytes() <= declared.forward_bytes;
  };
  double best = std::numeric_limits<double>::infinity();
  for (const nn::ProductLibrary* library : nn::product_candidates(shape, queue.device)) {
    nn::Products candidate;
    candidate.choose(shape, *library);
    if (library->workspace_is_estimated() && !keeps_to_declared(candidate)) continue;
    const auto multiply = [&] {
      switch (shape.form) {
        case nn::ProductForm::Forward:
          candidate.forward(queue, of.x, of.weight, of.bias);
          break;
        case nn::ProductForm::InputGradient:
          candidate.input_gradient(queue, of.dy, of.weight);
          break;
        case nn::ProductForm::WeightGradient:
          candidate.weight_gradient(queue, of.dy, of.x, of.target, false);
          break;
      }
    };
    const WorkSeconds taken = shortest_seconds(enough_seconds, multiply, stopwatch);
    roof = std::max(roof, operations / taken.seconds);
    if (taken.seconds >= best) continue;
    best = taken.seconds;
    products.choose(shape, *library);
  }
}

}  // namespace garonne::exec
