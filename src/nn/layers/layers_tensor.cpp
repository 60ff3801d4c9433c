// Compute nodes that only models cut along the tensor axis have: pieces of the lookup, of the bias
// and of the loss.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "kernels/bias.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/embedding.hpp"
#include "nn/layers/layers.hpp"
#include "nn/node_dropout.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class TokenRows : public Node {
 public:
  TokenRows(Rows rows, std::int64_t hidden, kernels::VocabularyPiece piece)
      : rows_(rows), hidden_(hidden), piece_(piece) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "token_rows";
    spec.cost_key = fmt::format("token_rows {}x{} of {}", rows_.count(), hidden_, piece_.width);
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    set_operations(spec, 0, static_cast<double>(rows_.count() * hidden_));
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    at::Tensor out = at::empty({rows_.count(), hidden_}, parameters[0].options());
    kernels::embedding_rows(context.queue, context.element_type(),
                            inputs[0].const_data_ptr<std::int64_t>(),
                            parameters[0].const_data_ptr(), piece_.first, piece_.width,
                            out.data_ptr(), rows_.count(), hidden_);
    return out;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const ParameterGradient& table = arguments.parameter_gradients[0];
    kernels::embedding_rows_backward(
        context.queue, context.element_type(), arguments.output_gradient.const_data_ptr(),
        arguments.inputs[0].const_data_ptr<std::int64_t>(), piece_.first, piece_.width,
        table.target.data_ptr(), table.accumulate, rows_.count(), hidden_);
    return {at::Tensor()};
  }

 private:
  Rows rows_;
  std::int64_t hidden_;
  kernels::VocabularyPiece piece_;
};

class PositionEmbedding : public Node {
 public:
  PositionEmbedding(std::string name, Rows rows, std::int64_t hidden, std::int64_t positions,
                    double dropout, std::shared_ptr<const Decoding> decoding)
      : name_(std::move(name)),
        rows_(rows),
        hidden_(hidden),
        positions_(positions),
        dropout_(dropout),
        decoding_(std::move(decoding)) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "position_embedding";
    spec.cost_key = fmt::format("position_embedding {} of {}x{}x{} dropout {}", rows_.count(),
                                rows_.batch, rows_.sequence, hidden_, dropout_ > 0);
    spec.gradient_aliases = {dropout_ == 0};
    const double elements = static_cast<double>(rows_.count() * hidden_);
    set_operations(spec, elements, 2 * elements);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    at::Tensor out = at::empty_like(inputs[0]);
    expect(!decoding_ || decoding_->first + rows_.sequence <= positions_,
           "a text goes on beyond the positions of " + name_);
    const at::Tensor positions = from_first_position(parameters[0], decoding_.get());
    // The rows of the input are a table that is read in order.
    kernels::embedding_forward(context.queue, context.element_type(), /*tokens=*/nullptr,
                               inputs[0].const_data_ptr(), positions.const_data_ptr(),
                               out.data_ptr(), dropout(context), context.samples, rows_.count(),
                               rows_.sequence, hidden_);
    return out;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    const ParameterGradient& table = arguments.parameter_gradients[0];
    kernels::embedding_backward(context.queue, context.element_type(), given.const_data_ptr(),
                                /*tokens=*/nullptr, nullptr, false, table.target.data_ptr(),
                                table.accumulate, dropout(context), context.samples, rows_.count(),
                                rows_.sequence, hidden_, 0, positions_);
    if (dropout_ == 0) return {given};
    at::Tensor gradient = at::empty_like(given);
    kernels::dropout_add(context.queue, context.element_type(), nullptr, given.const_data_ptr(),
                         gradient.data_ptr(), dropout(context), context.samples,
                         rows_.count() * hidden_, rows_.sequence * hidden_);
    return {gradient};
  }

 private:
  kernels::Dropout dropout(const Context& context) const {
    return dropout_of(context, name_, dropout_, rows_.first * hidden_);
  }

  std::string name_;
  Rows rows_;
  std::int64_t hidden_;
  std::int64_t positions_;
  double dropout_;
  std::shared_ptr<const Decoding> decoding_;
};

class Bias : public Node {
 public:
  Bias(Rows rows, std::int64_t hidden) : rows_(rows), hidden_(hidden) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "bias";
    spec.cost_key = fmt::format("bias {}x{}", rows_.count(), hidden_);
    spec.gradient_aliases = {true};
    const double elements = static_cast<double>(rows_.count() * hidden_);
    set_operations(spec, elements, elements);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    at::Tensor out = at::empty_like(inputs[0]);
    out.copy_(inputs[0]);
    kernels::add_bias(context.queue, context.element_type(), out.data_ptr(),
                      parameters[0].const_data_ptr(), rows_.count(), hidden_);
    return out;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const ParameterGradient& bias = arguments.parameter_gradients[0];
    kernels::bias_gradient(context.queue, context.element_type(),
                           arguments.output_gradient.const_data_ptr(), bias.target.data_ptr(),
                           bias.accumulate, rows_.count(), hidden_);
    return {arguments.output_gradient};
  }

 private:
  Rows rows_;
  std::int64_t hidden_;
};

class LogitStatistics : public Node {
 public:
  LogitStatistics(Rows rows, kernels::VocabularyPiece piece) : rows_(rows), piece_(piece) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "logit_statistics";
    spec.cost_key = fmt::format("logit_statistics {}x{}", rows_.count(), piece_.width);
    spec.gradient_aliases = {false, false};
    spec.pins_inputs = {true, true};
    spec.pins_output = true;
    const double elements = static_cast<double>(rows_.count() * piece_.width);
    set_operations(spec, 10 * elements, 10 * elements);
    spec.scores = rows_.count() * piece_.width;
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor out = at::empty({2, rows_.count()}, inputs[0].options().dtype(at::kDouble));
    kernels::logit_statistics(context.queue, context.element_type(), inputs[0].const_data_ptr(),
                              inputs[1].const_data_ptr<std::int64_t>(), piece_,
                              out.data_ptr<double>(), out.data_ptr<double>() + rows_.count(),
                              rows_.count());
    return out;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    at::Tensor gradient = at::empty_like(arguments.inputs[0]);
    const at::Tensor& given = arguments.output_gradient;
    kernels::logit_gradient(
        context.queue, context.element_type(), arguments.inputs[0].const_data_ptr(),
        arguments.inputs[1].const_data_ptr<std::int64_t>(), piece_,
        arguments.output.const_data_ptr<double>(), given.const_data_ptr<double>(),
        given.const_data_ptr<double>() + rows_.count(), gradient.data_ptr(), rows_.count());
    return {gradient, at::Tensor()};
  }

 private:
  Rows rows_;
  kernels::VocabularyPiece piece_;
};

class GatheredLoss : public Node {
 public:
  GatheredLoss(Rows rows, int pieces) : rows_(rows), pieces_(pieces) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "gathered_loss";
    spec.cost_key = fmt::format("gathered_loss {}x{}", pieces_, rows_.count());
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    const double elements = static_cast<double>(2 * pieces_ * rows_.count());
    set_operations(spec, 10 * elements, 10 * elements);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor loss = at::empty({}, inputs[0].options());
    kernels::gathered_cross_entropy(context.queue, inputs[0].const_data_ptr<double>(),
                                    loss.data_ptr<double>(), pieces_, rows_.count());
    return loss;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    at::Tensor gradient = at::empty_like(arguments.inputs[0]);
    kernels::gathered_cross_entropy_gradient(
        context.queue, arguments.inputs[0].const_data_ptr<double>(), arguments.loss_scale,
        gradient.data_ptr<double>(), pieces_, rows_.count());
    return {gradient};
  }

 private:
  Rows rows_;
  int pieces_;
};

}  // namespace

std::unique_ptr<Node> make_token_rows(Rows rows, std::int64_t hidden,
                                      kernels::VocabularyPiece piece) {
  return std::make_unique<TokenRows>(rows, hidden, piece);
}
std::unique_ptr<Node> make_position_embedding(const std::string& name, Rows rows,
                                              std::int64_t hidden, std::int64_t positions,
                                              double dropout,
                                              std::shared_ptr<const Decoding> decoding) {
  return std::make_unique<PositionEmbedding>(name, rows, hidden, positions, dropout,
                                             std::move(decoding));
}
std::unique_ptr<Node> make_bias(Rows rows, std::int64_t hidden) {
  return std::make_unique<Bias>(rows, hidden);
}
std::unique_ptr<Node> make_logit_statistics(Rows rows, kernels::VocabularyPiece piece) {
  return std::make_unique<LogitStatistics>(rows, piece);
}
std::unique_ptr<Node> make_gathered_loss(Rows rows, int pieces) {
  return std::make_unique<GatheredLoss>(rows, pieces);
}

}  // namespace garonne::nn
