// What a masked field is filled with where it has no value, before a model reads it again.
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nn/fields/field_layers.hpp"

namespace garonne::nn {
namespace {

class FieldFill : public Node {
 public:
  FieldFill(const FieldShape& shape, std::int64_t batch, std::int64_t step)
      : points_(shape.points),
        count_(shape.count()),
        steps_(shape.push_forward + shape.rollout),
        channels_(shape.target_channels),
        members_(shape.members),
        batch_(batch),
        step_(step) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "field_fill";
    spec.cost_key = fmt::format("field_fill {}x{}x{} of {}", batch_, fmt::join(points_, "x"),
                                channels_, steps_);
    if (members_ > 1) spec.cost_key += fmt::format(" members {}", members_);
    spec.gradient_aliases = {false, false};
    spec.overwrites_gradient = {true, false};
    spec.pins_inputs = {false, true};
    const auto elements = static_cast<double>(batch_ * count_ * channels_);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        spec.backward.floating_point_operations = elements;
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor filled = at::empty_like(inputs[0]);
    multiply(inputs[0], inputs[1], filled);
    return filled;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    at::Tensor gradient = arguments.overwrite[0] ? given : at::empty_like(given);
    multiply(given, arguments.inputs[1], gradient);
    return {gradient, at::Tensor()};
  }

 private:
  void multiply(const at::Tensor& field, const at::Tensor& mask, const at::Tensor& out) const {
    const std::int64_t samples = batch_ / members_;
    const auto by_point = [&](const at::Tensor& tensor) {
      return tensor.view({samples, members_, count_, channels_});
    };
    // The mask is of a sample, for all of its members.
    const at::Tensor here =
        mask.view({steps_, samples, 1, channels_, count_}).select(0, step_).transpose(2, 3);
    at::Tensor product = by_point(out);
    at::mul_out(product, by_point(field), here);
  }

  std::vector<std::int64_t> points_;
  std::int64_t count_;
  std::int64_t steps_;
  std::int64_t channels_;
  std::int64_t members_;
  std::int64_t batch_;
  std::int64_t step_;
};

}  // namespace

std::unique_ptr<Node> make_field_fill(const FieldShape& shape, std::int64_t batch,
                                      std::int64_t step) {
  return std::make_unique<FieldFill>(shape, batch, step);
}

}  // namespace garonne::nn
