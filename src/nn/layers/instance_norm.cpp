#include "nn/layers/instance_norm.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "kernels/instance_norm.hpp"
#include "nn/element_type.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class InstanceNorm : public Node {
 public:
  InstanceNorm(std::int64_t batch, std::int64_t points, std::int64_t channels, double epsilon)
      : batch_(batch), points_(points), channels_(channels), epsilon_(epsilon) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "instance_norm";
    spec.cost_key = fmt::format("instance_norm {}x{}x{}", batch_, points_, channels_);
    const std::int64_t statistics =
        declaration.allocation(batch_ * channels_ * state_bytes(declaration.precision));
    const std::int64_t workspace = declaration.allocation(workspace_bytes());
    spec.private_slot_bytes = {statistics, statistics};
    spec.gradient_aliases = {false};
    spec.overwrites_gradient = {true};
    spec.pins_inputs = {true};
    spec.forward.transient_bytes = workspace + 2 * statistics;
    spec.forward_keep.transient_bytes = workspace;
    spec.backward.transient_bytes = workspace;
    const auto elements = static_cast<double>(batch_ * points_ * channels_);
    set_operations(spec, 7 * elements, 14 * elements);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record* record) const override {
    at::Tensor y = at::empty_like(inputs[0]);
    const auto options = inputs[0].options().dtype(state_scalar_type(context.precision));
    at::Tensor mean = at::empty({batch_, channels_}, options);
    at::Tensor inverse_deviation = at::empty({batch_, channels_}, options);
    at::Tensor workspace = at::empty({workspace_bytes()}, options.dtype(at::kByte));
    kernels::instance_norm_forward(context.queue, context.element_type(),
                                   inputs[0].const_data_ptr(), parameters[0].const_data_ptr(),
                                   parameters[1].const_data_ptr(), epsilon_, y.data_ptr(),
                                   mean.data_ptr(), inverse_deviation.data_ptr(),
                                   workspace.data_ptr(), batch_, points_, channels_);
    if (record != nullptr) record->slots = {mean, inverse_deviation};
    return y;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& x = arguments.inputs[0];
    at::Tensor gradient = arguments.overwrite[0] ? arguments.output_gradient : at::empty_like(x);
    auto& gradients = arguments.parameter_gradients;
    at::Tensor workspace = at::empty({workspace_bytes()}, x.options().dtype(at::kByte));
    kernels::instance_norm_backward(
        context.queue, context.element_type(), arguments.output_gradient.const_data_ptr(),
        x.const_data_ptr(), arguments.parameters[0].const_data_ptr(),
        arguments.record->slots[0].const_data_ptr(), arguments.record->slots[1].const_data_ptr(),
        gradient.data_ptr(), gradients[0].target.data_ptr(), gradients[1].target.data_ptr(),
        gradients[0].accumulate, workspace.data_ptr(), batch_, points_, channels_);
    return {gradient};
  }

 private:
  std::int64_t workspace_bytes() const {
    return kernels::instance_norm_workspace_bytes(batch_, points_, channels_);
  }

  std::int64_t batch_;
  std::int64_t points_;
  std::int64_t channels_;
  double epsilon_;
};

}  // namespace

std::unique_ptr<Node> make_instance_norm(std::int64_t batch, std::int64_t points,
                                         std::int64_t channels, double epsilon) {
  return std::make_unique<InstanceNorm>(batch, points, channels, epsilon);
}

}  // namespace garonne::nn
