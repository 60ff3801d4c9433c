// Nodes without matrix products: embedding, layer norm, dropout with residual, GELU.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gelu.hpp"
#include "kernels/layer_norm.hpp"
#include "nn/element_type.hpp"
#include "nn/layers/layers.hpp"
#include "nn/node_dropout.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class Embedding : public Node {
 public:
  Embedding(std::string name, Rows rows, std::int64_t hidden, std::int64_t vocabulary,
            std::int64_t positions, double dropout, std::shared_ptr<const Decoding> decoding)
      : name_(std::move(name)),
        rows_(rows),
        hidden_(hidden),
        vocabulary_(vocabulary),
        positions_(positions),
        dropout_(dropout),
        decoding_(std::move(decoding)) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "embedding";
    spec.cost_key = fmt::format("embedding {}x{}x{} vocabulary {} dropout {}", rows_.batch,
                                rows_.sequence, hidden_, vocabulary_, dropout_ > 0);
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    const double additions = static_cast<double>(rows_.count() * hidden_);
    set_operations(spec, additions, 2 * additions);
    // The rows of tokens in their order, then the sums of both tables.
    set_kernels(spec, 1, 3);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    at::Tensor out = at::empty({rows_.count(), hidden_}, parameters[0].options());
    expect(!decoding_ || decoding_->first + rows_.sequence <= positions_,
           "a text goes on beyond the positions of " + name_);
    const at::Tensor positions = from_first_position(parameters[1], decoding_.get());
    kernels::embedding_forward(context.queue, context.element_type(),
                               inputs[0].const_data_ptr<std::int64_t>(),
                               parameters[0].const_data_ptr(), positions.const_data_ptr(),
                               out.data_ptr(), dropout_of(context, name_, dropout_),
                               context.samples, rows_.count(), rows_.sequence, hidden_);
    return out;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    auto& gradients = arguments.parameter_gradients;
    kernels::embedding_backward(
        context.queue, context.element_type(), arguments.output_gradient.const_data_ptr(),
        arguments.inputs[0].const_data_ptr<std::int64_t>(), gradients[0].target.data_ptr(),
        gradients[0].accumulate, gradients[1].target.data_ptr(), gradients[1].accumulate,
        dropout_of(context, name_, dropout_), context.samples, rows_.count(), rows_.sequence,
        hidden_, vocabulary_, positions_);
    return {at::Tensor()};
  }

 private:
  std::string name_;
  Rows rows_;
  std::int64_t hidden_;
  std::int64_t vocabulary_;
  std::int64_t positions_;
  double dropout_;
  std::shared_ptr<const Decoding> decoding_;
};

class LayerNorm : public Node {
 public:
  LayerNorm(Rows rows, std::int64_t hidden, double epsilon)
      : rows_(rows), hidden_(hidden), epsilon_(epsilon) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "layer_norm";
    spec.cost_key = fmt::format("layer_norm {}x{}", rows_.count(), hidden_);
    const std::int64_t statistics =
        declaration.allocation(rows_.count() * state_bytes(declaration.precision));
    spec.private_slot_bytes = {statistics, statistics};
    spec.gradient_aliases = {false};
    spec.adds_in_place = {true};
    spec.pins_inputs = {true};
    spec.backward.transient_bytes = declaration.allocation(kernels::layer_norm_workspace_bytes(
        element_type_of(declaration.precision), rows_.count(), hidden_));
    const double elements = static_cast<double>(rows_.count() * hidden_);
    set_operations(spec, 7 * elements, 14 * elements);
    // The input's gradient, and the sums for gain and bias in two.
    set_kernels(spec, 1, 3);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record* record) const override {
    at::Tensor y = at::empty_like(inputs[0]);
    if (record != nullptr) {
      const auto options = inputs[0].options().dtype(state_scalar_type(context.precision));
      record->slots = {at::empty({rows_.count()}, options), at::empty({rows_.count()}, options)};
    }
    kernels::layer_norm_forward(
        context.queue, context.element_type(), inputs[0].const_data_ptr(),
        parameters[0].const_data_ptr(), parameters[1].const_data_ptr(), epsilon_, y.data_ptr(),
        record == nullptr ? nullptr : record->slots[0].data_ptr(),
        record == nullptr ? nullptr : record->slots[1].data_ptr(), rows_.count(), hidden_);
    return y;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& x = arguments.inputs[0];
    const bool add = arguments.add_to[0].defined();
    at::Tensor gradient = add ? arguments.add_to[0] : at::empty_like(x);
    auto& gradients = arguments.parameter_gradients;
    const std::int64_t workspace_bytes =
        kernels::layer_norm_workspace_bytes(context.element_type(), rows_.count(), hidden_);
    at::Tensor workspace = at::empty({workspace_bytes}, x.options().dtype(at::kByte));
    kernels::layer_norm_backward(
        context.queue, context.element_type(), arguments.output_gradient.const_data_ptr(),
        x.const_data_ptr(), arguments.parameters[0].const_data_ptr(),
        arguments.record->slots[0].const_data_ptr(), arguments.record->slots[1].const_data_ptr(),
        gradient.data_ptr(), add, gradients[0].target.data_ptr(), gradients[1].target.data_ptr(),
        gradients[0].accumulate, workspace.data_ptr(), rows_.count(), hidden_);
    return {gradient};
  }

 private:
  Rows rows_;
  std::int64_t hidden_;
  double epsilon_;
};

class DropoutAdd : public Node {
 public:
  DropoutAdd(std::string name, Rows rows, std::int64_t hidden, double dropout)
      : name_(std::move(name)), rows_(rows), hidden_(hidden), dropout_(dropout) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "dropout_add";
    spec.cost_key =
        fmt::format("dropout_add {}x{} dropout {}", rows_.count(), hidden_, dropout_ > 0);
    // The residual's gradient is the incoming one; so is the branch's where nothing is dropped.
    spec.gradient_aliases = {true, dropout_ == 0};
    const double elements = static_cast<double>(rows_.count() * hidden_);
    set_operations(spec, 2 * elements, dropout_ > 0 ? elements : 0);
    // Numbers of samples are copied first.
    set_kernels(spec, dropout_ > 0 ? 2 : 1, dropout_ > 0 ? 2 : 0);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor out = at::empty_like(inputs[0]);
    kernels::dropout_add(context.queue, context.element_type(), inputs[0].const_data_ptr(),
                         inputs[1].const_data_ptr(), out.data_ptr(),
                         dropout_of(context, name_, dropout_, rows_.first * hidden_),
                         context.samples, rows_.count() * hidden_, rows_.sequence * hidden_);
    return out;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    if (dropout_ == 0) return {arguments.output_gradient, arguments.output_gradient};
    at::Tensor gradient = at::empty_like(arguments.output_gradient);
    kernels::dropout_add(context.queue, context.element_type(), nullptr,
                         arguments.output_gradient.const_data_ptr(), gradient.data_ptr(),
                         dropout_of(context, name_, dropout_, rows_.first * hidden_),
                         context.samples, rows_.count() * hidden_, rows_.sequence * hidden_);
    return {arguments.output_gradient, gradient};
  }

 private:
  std::string name_;
  Rows rows_;
  std::int64_t hidden_;
  double dropout_;
};

class Gelu : public Node {
 public:
  Gelu(Rows rows, std::int64_t hidden) : rows_(rows), hidden_(hidden) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "gelu";
    spec.cost_key = fmt::format("gelu {}x{}", rows_.count(), hidden_);
    spec.gradient_aliases = {false};
    spec.overwrites_gradient = {true};
    spec.pins_inputs = {true};
    const double elements = static_cast<double>(rows_.count() * hidden_);
    set_operations(spec, 10 * elements, 20 * elements);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor y = at::empty_like(inputs[0]);
    kernels::gelu_forward(context.queue, context.element_type(), inputs[0].const_data_ptr(),
                          y.data_ptr(), y.numel());
    return y;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    at::Tensor gradient =
        arguments.overwrite[0] ? arguments.output_gradient : at::empty_like(arguments.inputs[0]);
    kernels::gelu_backward(
        context.queue, context.element_type(), arguments.output_gradient.const_data_ptr(),
        arguments.inputs[0].const_data_ptr(), gradient.data_ptr(), gradient.numel());
    return {gradient};
  }

 private:
  Rows rows_;
  std::int64_t hidden_;
};

}  // namespace

std::unique_ptr<Node> make_embedding(const std::string& name, Rows rows, std::int64_t hidden,
                                     std::int64_t vocabulary, std::int64_t positions,
                                     double dropout, std::shared_ptr<const Decoding> decoding) {
  return std::make_unique<Embedding>(name, rows, hidden, vocabulary, positions, dropout,
                                     std::move(decoding));
}
std::unique_ptr<Node> make_layer_norm(Rows rows, std::int64_t hidden, double epsilon) {
  return std::make_unique<LayerNorm>(rows, hidden, epsilon);
}
std::unique_ptr<Node> make_dropout_add(const std::string& name, Rows rows, std::int64_t hidden,
                                       double dropout) {
  return std::make_unique<DropoutAdd>(name, rows, hidden, dropout);
}
std::unique_ptr<Node> make_gelu(Rows rows, std::int64_t hidden) {
  return std::make_unique<Gelu>(rows, hidden);
}

}  // namespace garonne::nn
