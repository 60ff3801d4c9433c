// Nodes around matrix products: linear layer, the heads.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.hpp"
#include "kernels/bias.hpp"
#include "kernels/cross_entropy.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"
#include "nn/layers/layers.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class Linear : public Node {
 public:
  Linear(Rows rows, std::int64_t inputs, std::int64_t outputs, bool bias)
      : rows_(rows), inputs_(inputs), outputs_(outputs), bias_(bias) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "linear";
    spec.cost_key =
        fmt::format("linear {}x{}x{}{}", rows_.count(), outputs_, inputs_, bias_ ? "" : " no bias");
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    spec.splits_backward = true;
    const ProductTransients transients =
        product_transients(declaration, rows_.count(), outputs_, inputs_);
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = transients.forward_bytes;
    spec.backward.transient_bytes = transients.input_gradient_bytes;
    spec.backward_weight.transient_bytes = transients.weight_gradient_bytes;
    const double operations = product_operations(rows_.count(), outputs_, inputs_);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        operations;
    spec.backward.floating_point_operations = spec.backward_weight.floating_point_operations =
        operations;
    spec.forward.product = spec.forward_keep.product = {rows_.count(), outputs_, inputs_};
    spec.backward.product = {rows_.count(), inputs_, outputs_};
    spec.backward_weight.product = {outputs_, inputs_, rows_.count()};
    spec.backward_weight.kernels = bias_ ? 2 : 1;
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    return context.products->forward(context.queue, inputs[0], parameters[0],
                                     bias_ ? parameters[1] : at::Tensor());
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& gradient = arguments.output_gradient;
    auto& gradients = arguments.parameter_gradients;
    if (arguments.weights) {
      context.products->weight_gradient(context.queue, gradient, arguments.inputs[0],
                                        gradients[0].target, gradients[0].accumulate);
      if (bias_) {
        kernels::bias_gradient(context.queue, context.element_type(), gradient.const_data_ptr(),
                               gradients[1].target.data_ptr(), gradients[1].accumulate,
                               rows_.count(), outputs_);
      }
    }
    if (!arguments.wanted[0]) return {at::Tensor()};
    return {context.products->input_gradient(context.queue, gradient, arguments.parameters[0])};
  }

 private:
  Rows rows_;
  std::int64_t inputs_;
  std::int64_t outputs_;
  bool bias_;
};

class LossHead : public Node {
 public:
  LossHead(Rows rows, std::int64_t hidden, std::int64_t vocabulary)
      : rows_(rows), hidden_(hidden), vocabulary_(vocabulary) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "loss_head";
    spec.cost_key = fmt::format("loss_head {}x{}x{}", rows_.count(), vocabulary_, hidden_);
    const std::int64_t logits = declaration.tensor(rows_.count() * vocabulary_);
    const std::int64_t row_losses = declaration.allocation(rows_.count() * 8);
    spec.private_slot_bytes = {logits};
    spec.gradient_aliases = {false, false};
    spec.pins_inputs = {true, false};
    const ProductTransients transients =
        product_transients(declaration, rows_.count(), vocabulary_, hidden_);
    spec.forward_keep.transient_bytes = std::max(row_losses, transients.forward_bytes);
    spec.forward.transient_bytes = logits + spec.forward_keep.transient_bytes;
    // The weight gradient comes first, in the room that the input gradient takes afterwards.
    spec.backward.transient_bytes =
        std::max(transients.input_gradient_bytes,
                 transients.weight_gradient_bytes - declaration.tensor(rows_.count() * hidden_));
    const double operations = product_operations(rows_.count(), vocabulary_, hidden_);
    set_operations(spec, operations, 2 * operations);
    spec.forward.product = spec.forward_keep.product = {rows_.count(), vocabulary_, hidden_};
    spec.backward.product = {rows_.count(), hidden_, vocabulary_};
    spec.scores = rows_.count() * vocabulary_;
    // The product, the losses of rows, and their sum.
    set_kernels(spec, 3, 2);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record* record) const override {
    const at::Tensor logits =
        context.products->forward(context.queue, inputs[0], parameters[0], at::Tensor());
    at::Tensor row_losses = at::empty({rows_.count()}, inputs[0].options().dtype(at::kDouble));
    const double mean_of_rows = 1.0 / static_cast<double>(rows_.count());
    at::Tensor loss = at::empty({}, inputs[0].options().dtype(at::kDouble));
    kernels::cross_entropy(context.queue, context.element_type(), logits.data_ptr(),
                           inputs[1].const_data_ptr<std::int64_t>(), mean_of_rows,
                           /*write_gradient=*/record != nullptr, row_losses.data_ptr<double>(),
                           loss.data_ptr<double>(), rows_.count(), vocabulary_);
    if (record != nullptr) record->slots = {logits};
    return loss;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& gradient = arguments.record->slots[0];
    auto& target = arguments.parameter_gradients[0];
    context.products->weight_gradient(context.queue, gradient, arguments.inputs[0], target.target,
                                      target.accumulate, arguments.loss_scale);
    return {context.products->input_gradient(context.queue, gradient, arguments.parameters[0],
                                             arguments.loss_scale),
            at::Tensor()};
  }

 private:
  Rows rows_;
  std::int64_t hidden_;
  std::int64_t vocabulary_;
};

class LogitsHead : public Node {
 public:
  LogitsHead(Rows rows, std::int64_t hidden, std::int64_t vocabulary)
      : rows_(rows), hidden_(hidden), vocabulary_(vocabulary) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "logits_head";
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        product_transients(declaration, rows_.count(), vocabulary_, hidden_).forward_bytes;
    spec.cost_key = fmt::format("logits_head {}x{}x{}", rows_.count(), vocabulary_, hidden_);
    spec.gradient_aliases = {false};
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        product_operations(rows_.count(), vocabulary_, hidden_);
    spec.forward.product = spec.forward_keep.product = {rows_.count(), vocabulary_, hidden_};
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    return context.products->forward(context.queue, inputs[0], parameters[0], at::Tensor());
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments&) const override {
    throw InternalError("the logits head runs forward only");
  }

 private:
  Rows rows_;
  std::int64_t hidden_;
  std::int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<Node> make_linear(Rows rows, std::int64_t inputs, std::int64_t outputs, bool bias) {
  return std::make_unique<Linear>(rows, inputs, outputs, bias);
}
std::unique_ptr<Node> make_loss_head(Rows rows, std::int64_t hidden, std::int64_t vocabulary) {
  return std::make_unique<LossHead>(rows, hidden, vocabulary);
}
std::unique_ptr<Node> make_logits_head(Rows rows, std::int64_t hidden, std::int64_t vocabulary) {
  return std::make_unique<LogitsHead>(rows, hidden, vocabulary);
}

}  // namespace garonne::nn
