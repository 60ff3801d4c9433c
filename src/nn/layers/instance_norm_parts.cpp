#include "nn/layers/instance_norm_parts.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "kernels/instance_moments.hpp"
#include "kernels/instance_norm.hpp"
#include "nn/element_type.hpp"

namespace garonne::nn {
namespace {

class InstanceMoments : public Node {
 public:
  InstanceMoments(const FieldRows& rows, std::int64_t points_in_row, std::int64_t batch,
                  std::int64_t channels)
      : batch_(batch),
        points_(static_cast<std::int64_t>(rows.slots.size()) * points_in_row),
        channels_(channels) {
    for (std::size_t slot = 0; slot < rows.slots.size(); ++slot) {
      if (rows.slots[slot] == FieldRows::none) continue;
      const std::int64_t first = static_cast<std::int64_t>(slot) * points_in_row;
      if (counted_.empty() || counted_.back().first + counted_.back().count != first)
        counted_.push_back({first, 0});
      counted_.back().count += points_in_row;
    }
  }

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "instance_moments";
    spec.cost_key = fmt::format("instance_moments {}x{}x{}", batch_, points_, channels_);
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    spec.pins_output = true;
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        declaration.allocation(workspace_bytes());
    const std::int64_t statistics =
        declaration.allocation(batch_ * channels_ * state_bytes(declaration.precision));
    spec.backward.transient_bytes =
        2 * statistics + declaration.tensor(batch_ * channels_) + declaration.tensor(channels_);
    const auto elements = static_cast<double>(batch_ * points_ * channels_);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        4 * elements;
    spec.backward.floating_point_operations = 3 * elements;
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    const at::Tensor moments =
        at::empty({2, batch_, channels_}, inputs[0].options().dtype(at::kDouble));
    const at::Tensor workspace =
        at::empty({workspace_bytes()}, inputs[0].options().dtype(at::kByte));
    kernels::instance_norm_moments(context.queue, context.element_type(),
                                   inputs[0].const_data_ptr(), counted_, moments.data_ptr<double>(),
                                   workspace.data_ptr(), batch_, points_, channels_);
    return moments;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& x = arguments.inputs[0];
    const auto state = x.options().dtype(state_scalar_type(context.precision));
    const at::Tensor mean = at::empty({batch_, channels_}, state);
    const at::Tensor factor = at::empty({batch_, channels_}, state);
    const at::Tensor constant = at::empty({batch_, channels_}, x.options());
    const at::Tensor one = at::empty({channels_}, x.options());
    at::Tensor gradient = at::empty({batch_ * points_, channels_}, x.options());
    kernels::instance_moments_gradient(
        context.queue, context.element_type(), x.const_data_ptr(), counted_,
        arguments.output.const_data_ptr<double>(),
        arguments.output_gradient.const_data_ptr<double>(), gradient.data_ptr(),
        {mean.data_ptr(), factor.data_ptr(), constant.data_ptr(), one.data_ptr()}, batch_, points_,
        channels_);
    return {gradient};
  }

 private:
  std::int64_t workspace_bytes() const {
    return kernels::instance_norm_workspace_bytes(batch_, points_, channels_);
  }

  std::int64_t batch_;
  std::int64_t points_;
  std::int64_t channels_;
  std::vector<kernels::PointRun> counted_;
};

class InstanceNormOfMoments : public Node {
 public:
  InstanceNormOfMoments(std::vector<std::int64_t> counted, std::int64_t points, std::int64_t batch,
                        std::int64_t channels, double epsilon)
      : counted_(std::move(counted)),
        points_(points),
        batch_(batch),
        channels_(channels),
        epsilon_(epsilon) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "instance_norm_of_moments";
    spec.cost_key = fmt::format("instance_norm_of_moments {}x{}x{} of {}", batch_, points_,
                                channels_, counted_.size());
    spec.gradient_aliases = {false, false};
    spec.overwrites_gradient = {true, false};
    spec.pins_inputs = {true, true};
    const std::int64_t statistics =
        2 * declaration.allocation(batch_ * channels_ * state_bytes(declaration.precision));
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = statistics;
    spec.backward.transient_bytes = statistics + declaration.allocation(workspace_bytes()) +
                                    declaration.allocation(16 * batch_ * channels_) +
                                    declaration.allocation(8 * channels_);
    const auto elements = static_cast<double>(batch_ * points_ * channels_);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        4 * elements;
    spec.backward.floating_point_operations = 10 * elements;
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    at::Tensor y = at::empty_like(inputs[0]);
    const Statistics statistics = statistics_of(context, inputs[1]);
    kernels::instance_norm_apply(context.queue, context.element_type(), inputs[0].const_data_ptr(),
                                 parameters[0].const_data_ptr(), parameters[1].const_data_ptr(),
                                 statistics.mean.const_data_ptr(),
                                 statistics.inverse.const_data_ptr(), y.data_ptr(), batch_, points_,
                                 channels_);
    return y;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& x = arguments.inputs[0];
    const at::Tensor gradient =
        arguments.overwrite[0] ? arguments.output_gradient : at::empty_like(x);
    const auto doubles = x.options().dtype(at::kDouble);
    const at::Tensor of_moments = at::empty({members(), 2, batch_, channels_}, doubles);
    const Statistics statistics = statistics_of(context, arguments.inputs[1]);
    const at::Tensor workspace = at::empty({workspace_bytes()}, x.options().dtype(at::kByte));
    const at::Tensor sums = at::empty({batch_, 2, channels_}, doubles);
    at::Tensor gain = at::empty({channels_}, doubles);
    gain.copy_(arguments.parameters[0]);
    kernels::instance_norm_apply_backward(
        context.queue, context.element_type(), arguments.output_gradient.const_data_ptr(),
        x.const_data_ptr(), arguments.parameters[0].const_data_ptr(),
        statistics.mean.const_data_ptr(), statistics.inverse.const_data_ptr(), gradient.data_ptr(),
        sums.data_ptr<double>(), workspace.data_ptr(), batch_, points_, channels_);
    const auto& targets = arguments.parameter_gradients;
    kernels::instance_parameter_gradients(
        context.queue, context.element_type(), sums.const_data_ptr<double>(),
        targets[0].target.data_ptr(), targets[0].accumulate, targets[1].target.data_ptr(),
        targets[1].accumulate, batch_, channels_);
    kernels::gathered_statistics_gradient(
        context.queue, gathered(arguments.inputs[1]), sums.const_data_ptr<double>(),
        gain.const_data_ptr<double>(), of_moments.data_ptr<double>());
    return {gradient, of_moments};
  }

 private:
  struct Statistics {
    at::Tensor mean;  // [batch, channels]
    at::Tensor inverse;
  };

  std::int64_t members() const { return static_cast<std::int64_t>(counted_.size()); }
  std::int64_t workspace_bytes() const {
    return kernels::instance_norm_workspace_bytes(batch_, points_, channels_);
  }
  kernels::GatheredMoments gathered(const at::Tensor& moments) const {
    return kernels::GatheredMoments{moments.const_data_ptr<double>(), counted_, batch_, channels_,
                                    epsilon_};
  }

  Statistics statistics_of(const Context& context, const at::Tensor& moments) const {
    const auto options = moments.options().dtype(state_scalar_type(context.precision));
    Statistics made{at::empty({batch_, channels_}, options),
                    at::empty({batch_, channels_}, options)};
    kernels::gathered_statistics(context.queue, context.element_type(), gathered(moments),
                                 made.mean.data_ptr(), made.inverse.data_ptr());
    return made;
  }

  std::vector<std::int64_t> counted_;
  std::int64_t points_;
  std::int64_t batch_;
  std::int64_t channels_;
  double epsilon_;
};

}  // namespace

std::unique_ptr<Node> make_instance_moments(const FieldRows& rows, std::int64_t points_in_row,
                                            std::int64_t batch, std::int64_t channels) {
  return std::make_unique<InstanceMoments>(rows, points_in_row, batch, channels);
}
std::unique_ptr<Node> make_instance_norm_of_moments(std::vector<std::int64_t> counted,
                                                    std::int64_t points, std::int64_t batch,
                                                    std::int64_t channels, double epsilon) {
  return std::make_unique<InstanceNormOfMoments>(std::move(counted), points, batch, channels,
                                                 epsilon);
}

}  // namespace garonne::nn
