// Nodes around matrix products: linear layer, attention, the heads.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.hpp"
#include "kernels/bias.hpp"
#include "kernels/cross_entropy.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/onednn_workspace.hpp"
#include "nn/gemm/product.hpp"
#include "nn/layers/gpu_attention.hpp"
#include "nn/layers/layers.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

double product_operations(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

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

class Attention : public Node {
 public:
  Attention(Rows rows, std::int64_t heads, std::int64_t head_size)
      : rows_(rows), heads_(heads), head_size_(head_size) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "attention";
    spec.cost_key =
        fmt::format("attention {}x{}x{}x{}", rows_.batch, rows_.sequence, heads_, head_size_);
    const bool on_gpu = declaration.device.is_gpu();
    const GpuAttentionBytes gpu =
        on_gpu ? gpu_attention_bytes(declaration, sizes()) : GpuAttentionBytes();
    // The log-sum-exp of each row of scores.
    spec.private_slot_bytes = {on_gpu ? gpu.log_sums
                                      : declaration.allocation(rows_.count() * heads_ *
                                                               state_bytes(declaration.precision))};
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    spec.pins_output = true;
    if (on_gpu) {
      declare_transients(declaration, gpu.forward, gpu.backward, spec);
    } else {
      declare_processor_transients(declaration, spec);
    }
    // Two products forward and five backward, half of each masked away.
    const double product = product_operations(rows_.sequence, rows_.sequence, head_size_) *
                           static_cast<double>(rows_.batch * heads_) / 2;
    set_operations(spec, 2 * product, 5 * product);
    // Sums of rows, the gradients, queries' in their type, and the three side by side.
    set_kernels(spec, 1, 4);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record* record) const override {
    const auto [result, log_sums] = attend(context.queue, parts(inputs[0]));
    if (record != nullptr) record->slots = {log_sums};
    // Detached, since a view would hold the tensor that it is one of.
    return result.transpose(1, 2).reshape({rows_.count(), heads_ * head_size_}).detach();
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const auto [of_query, of_key, of_value] = attend_backward(
        context.queue, parts(arguments.inputs[0]), by_head(arguments.output_gradient),
        {by_head(arguments.output), arguments.record->slots[0]});
    const at::Tensor gradient = at::stack(
        {of_query.transpose(1, 2), of_key.transpose(1, 2), of_value.transpose(1, 2)}, /*dim=*/2);
    return {gradient.view_as(arguments.inputs[0])};
  }

 private:
  // [rows, heads · head size] as [batch, heads, sequence, head size].
  at::Tensor by_head(const at::Tensor& rows) const {
    return rows.view({rows_.batch, rows_.sequence, heads_, head_size_}).transpose(1, 2);
  }
  AttentionSizes sizes() const { return {rows_.batch, rows_.sequence, heads_, head_size_}; }

  static Attended attend(const Queue& queue, const AttentionParts& parts) {
    if (queue.device == DeviceKind::Cuda) return gpu_attention(parts);
    const auto [result, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        parts[0], parts[1], parts[2], /*dropout_p=*/0.0, /*is_causal=*/true);
    return {result, log_sums};
  }

  static AttentionParts attend_backward(const Queue& queue, const AttentionParts& parts,
                                        const at::Tensor& gradient, const Attended& forward) {
    if (queue.device == DeviceKind::Cuda) return gpu_attention_backward(parts, gradient, forward);
    const auto [of_query, of_key, of_value] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, parts[0], parts[1], parts[2], forward.result, forward.log_sums,
            /*dropout_p=*/0.0, /*is_causal=*/true);
    return {of_query, of_key, of_value};
  }

  // Queries, keys and values, the same.
  AttentionParts parts(const at::Tensor& x) const {
    const at::Tensor all = x.view({rows_.batch, rows_.sequence, 3, heads_, head_size_});
    const auto part = [&](std::int64_t which) { return all.select(2, which).transpose(1, 2); };
    return {part(0), part(1), part(2)};
  }

  // The tensor library's blocked attention takes scratch memory of its own. Sizes as its sources
  // choose them; held against measurement by a test in all types, since another version may choose
  // others.
  void declare_processor_transients(const Declaration& declaration, plan::NodeSpec& spec) const {
    const std::int64_t row_block = rows_.sequence >= 768 ? 256 : rows_.sequence >= 192 ? 64 : 32;
    const std::int64_t rows = std::min(row_block, rows_.sequence);
    const std::int64_t columns = std::min<std::int64_t>(512, rows_.sequence);
    const std::int64_t state = state_bytes(declaration.precision);
    const bool low_precision = declaration.precision == Precision::BFloat16;
    // For each thread one block of scores, the maxima and sums of its rows, and the rows of its
    // result.
    std::int64_t forward_scratch = declaration.allocation(
        declaration.threads * (rows * columns + 2 * rows + rows * head_size_) * state);
    // For each thread the scores and their gradients; the row sums of the calling thread only,
    // since those of the others are allocated on their threads, which are not of the device tier.
    std::int64_t backward_scratch =
        declaration.allocation(declaration.threads * 2 * rows * columns * state) +
        declaration.allocation(rows * state);
    if (low_precision) {
      // The same blocks once more in the compute type, to multiply with.
      const std::int64_t block = declaration.threads * rows * columns * declaration.element_bytes();
      forward_scratch += declaration.allocation(block) + packing_bytes(declaration, rows, columns);
      backward_scratch +=
          declaration.allocation(2 * block) +
          std::max(low_precision_workspace_bytes(declaration, columns, head_size_, rows, true),
                   low_precision_workspace_bytes(declaration, rows, head_size_, columns, false));
    }
    declare_transients(declaration, forward_scratch, backward_scratch, spec);
  }

  // By what the kernels take beside inputs and results.
  void declare_transients(const Declaration& declaration, std::int64_t forward_scratch,
                          std::int64_t backward_scratch, plan::NodeSpec& spec) const {
    // A recorded forward makes the log-sum-exp its slot; an unrecorded one drops it.
    spec.forward.transient_bytes = forward_scratch + spec.private_slot_bytes[0];
    spec.forward_keep.transient_bytes = forward_scratch;
    // The three gradients are made apart, beside the scratch, then stacked into the gradient of
    // qkv, which is the output and not a transient; the scratch is gone by then.
    const std::int64_t apart = 3 * declaration.tensor(rows_.count() * heads_ * head_size_);
    const std::int64_t stacked = declaration.tensor(3 * rows_.count() * heads_ * head_size_);
    spec.backward.transient_bytes = apart + std::max<std::int64_t>(0, backward_scratch - stacked);
  }

  // Where the processor multiplies bfloat16 in tiles, keys and values are packed for them first (an
  // upper bound: the library does so only where it expects to gain by it).
  std::int64_t packing_bytes(const Declaration& declaration, std::int64_t rows,
                             std::int64_t columns) const {
    if (rows_.sequence < 64 || !multiplies_in_tiles()) return 0;
    const std::int64_t element = declaration.element_bytes();
    const std::int64_t even_head = head_size_ + head_size_ % 2;
    const std::int64_t tail = (rows_.sequence - 1) % columns + 1;
    const std::int64_t even_columns =
        (rows_.sequence - 1) / columns * (columns + columns % 2) + tail + tail % 2;
    const std::int64_t matrices = rows_.batch * heads_;
    std::int64_t bytes =
        declaration.tensor(matrices * even_head * rows_.sequence) +
        declaration.tensor(matrices * even_columns * head_size_) +
        declaration.allocation(declaration.threads * columns * head_size_ * element);
    if (columns % 2 != 0) bytes += declaration.allocation(declaration.threads * rows * element);
    if (even_head != head_size_)
      bytes += declaration.allocation(declaration.threads * rows * even_head * element);
    return bytes;
  }

  Rows rows_;
  std::int64_t heads_;
  std::int64_t head_size_;
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
std::unique_ptr<Node> make_attention(Rows rows, std::int64_t heads, std::int64_t head_size) {
  return std::make_unique<Attention>(rows, heads, head_size);
}
std::unique_ptr<Node> make_loss_head(Rows rows, std::int64_t hidden, std::int64_t vocabulary) {
  return std::make_unique<LossHead>(rows, hidden, vocabulary);
}
std::unique_ptr<Node> make_logits_head(Rows rows, std::int64_t hidden, std::int64_t vocabulary) {
  return std::make_unique<LogitsHead>(rows, hidden, vocabulary);
}

}  // namespace garonne::nn
