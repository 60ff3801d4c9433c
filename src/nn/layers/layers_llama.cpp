// Nodes of Llama without matrix products: RMS norm, rotary positions, SwiGLU.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rotary.hpp"
#include "kernels/swiglu.hpp"
#include "nn/element_type.hpp"
#include "nn/layers/layers.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class RmsNorm : public Node {
 public:
  RmsNorm(Rows rows, std::int64_t hidden, double epsilon)
      : rows_(rows), hidden_(hidden), epsilon_(epsilon) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "rms_norm";
    spec.cost_key = fmt::format("rms_norm {}x{}", rows_.count(), hidden_);
    spec.private_slot_bytes = {
        declaration.allocation(rows_.count() * state_bytes(declaration.precision))};
    spec.gradient_aliases = {false};
    spec.adds_in_place = {true};
    spec.pins_inputs = {true};
    spec.backward.transient_bytes = declaration.allocation(kernels::rms_norm_workspace_bytes(
        element_type_of(declaration.precision), rows_.count(), hidden_));
    const double elements = static_cast<double>(rows_.count() * hidden_);
    set_operations(spec, 4 * elements, 9 * elements);
    // The input's gradient, and the sums for the gain in two.
    set_kernels(spec, 1, 3);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record* record) const override {
    at::Tensor y = at::empty_like(inputs[0]);
    if (record != nullptr) {
      record->slots = {at::empty({rows_.count()},
                                 inputs[0].options().dtype(state_scalar_type(context.precision)))};
    }
    kernels::rms_norm_forward(context.queue, context.element_type(), inputs[0].const_data_ptr(),
                              parameters[0].const_data_ptr(), epsilon_, y.data_ptr(),
                              record == nullptr ? nullptr : record->slots[0].data_ptr(),
                              rows_.count(), hidden_);
    return y;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& x = arguments.inputs[0];
    const bool add = arguments.add_to[0].defined();
    at::Tensor gradient = add ? arguments.add_to[0] : at::empty_like(x);
    const ParameterGradient& of_gain = arguments.parameter_gradients[0];
    const std::int64_t workspace_bytes =
        kernels::rms_norm_workspace_bytes(context.element_type(), rows_.count(), hidden_);
    at::Tensor workspace = at::empty({workspace_bytes}, x.options().dtype(at::kByte));
    kernels::rms_norm_backward(context.queue, context.element_type(),
                               arguments.output_gradient.const_data_ptr(), x.const_data_ptr(),
                               arguments.parameters[0].const_data_ptr(),
                               arguments.record->slots[0].const_data_ptr(), gradient.data_ptr(),
                               add, of_gain.target.data_ptr(), of_gain.accumulate,
                               workspace.data_ptr(), rows_.count(), hidden_);
    return {gradient};
  }

 private:
  Rows rows_;
  std::int64_t hidden_;
  double epsilon_;
};

// The cosines and sines, made when they are first asked for.
class RotaryTable {
 public:
  RotaryTable(std::int64_t sequence, std::int64_t head_size, double theta)
      : sequence_(sequence), head_size_(head_size), theta_(theta) {}

  const float* on_host() const {
    std::call_once(made_, [&] { values_ = kernels::rotary_table(sequence_, head_size_, theta_); });
    return values_.data();
  }
  std::string name() const {
    return fmt::format("rotary {}x{} theta {}", sequence_, head_size_, theta_);
  }
  std::int64_t bytes() const {
    return sequence_ * head_size_ * static_cast<std::int64_t>(sizeof(float));
  }

 private:
  std::int64_t sequence_;
  std::int64_t head_size_;
  double theta_;
  mutable std::once_flag made_;
  mutable std::vector<float> values_;
};

class Rotary : public Node {
 public:
  Rotary(Rows rows, std::int64_t positions, const kernels::RotaryHeads& heads, double theta,
         std::shared_ptr<const Decoding> decoding)
      : rows_(rows),
        positions_(positions),
        heads_(heads),
        table_(positions, heads.head_size, theta),
        decoding_(std::move(decoding)) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "rotary";
    spec.cost_key = fmt::format("rotary {}x{}x{}+{}x{}", rows_.count(), heads_.groups,
                                heads_.rotated, heads_.copied, heads_.head_size);
    spec.gradient_aliases = {false};
    spec.overwrites_gradient = {true};
    const double elements = static_cast<double>(rows_.count() * heads_.width());
    set_operations(spec, 3 * elements, 3 * elements);
    return spec;
  }

  std::vector<ConstantTable> tables(Precision) const override {
    return {{table_.name(), table_.bytes(), [this] { return table_.on_host(); }}};
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor y = at::empty_like(inputs[0]);
    rotate(context, inputs[0], y, /*back=*/false);
    return y;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    at::Tensor gradient = arguments.overwrite[0] ? given : at::empty_like(given);
    rotate(context, given, gradient, /*back=*/true);
    return {gradient};
  }

 private:
  void rotate(const Context& context, const at::Tensor& x, at::Tensor& y, bool back) const {
    const at::Tensor copy = context.table(table_.name(), table_.bytes());
    expect(!decoding_ || decoding_->first + rows_.sequence <= positions_,
           "a text goes on beyond the rotary positions");
    // A row of the table has as many numbers as a head.
    const std::int64_t first = decoding_ ? decoding_->first * heads_.head_size : 0;
    kernels::rotate_heads(
        context.queue, context.element_type(), x.const_data_ptr(),
        (copy.defined() ? static_cast<const float*>(copy.const_data_ptr()) : table_.on_host()) +
            first,
        y.data_ptr(), heads_, back, rows_.count(), rows_.sequence);
  }

  Rows rows_;
  std::int64_t positions_;
  kernels::RotaryHeads heads_;
  RotaryTable table_;
  std::shared_ptr<const Decoding> decoding_;
};

class Swiglu : public Node {
 public:
  Swiglu(Rows rows, std::int64_t inner) : rows_(rows), inner_(inner) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "swiglu";
    spec.cost_key = fmt::format("swiglu {}x{}", rows_.count(), inner_);
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    const double elements = static_cast<double>(rows_.count() * inner_);
    set_operations(spec, 10 * elements, 18 * elements);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor y = at::empty({rows_.count(), inner_}, inputs[0].options());
    kernels::swiglu_forward(context.queue, context.element_type(), inputs[0].const_data_ptr(),
                            y.data_ptr(), rows_.count(), inner_);
    return y;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    at::Tensor gradient = at::empty_like(arguments.inputs[0]);
    kernels::swiglu_backward(
        context.queue, context.element_type(), arguments.output_gradient.const_data_ptr(),
        arguments.inputs[0].const_data_ptr(), gradient.data_ptr(), rows_.count(), inner_);
    return {gradient};
  }

 private:
  Rows rows_;
  std::int64_t inner_;
};

}  // namespace

std::unique_ptr<Node> make_rms_norm(Rows rows, std::int64_t hidden, double epsilon) {
  return std::make_unique<RmsNorm>(rows, hidden, epsilon);
}
std::unique_ptr<Node> make_rotary(Rows rows, std::int64_t positions,
                                  const kernels::RotaryHeads& heads, double theta,
                                  std::shared_ptr<const Decoding> decoding) {
  return std::make_unique<Rotary>(rows, positions, heads, theta, std::move(decoding));
}
std::unique_ptr<Node> make_swiglu(Rows rows, std::int64_t inner) {
  return std::make_unique<Swiglu>(rows, inner);
}

}  // namespace garonne::nn
