#include "nn/spectral/spectral_parts.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "kernels/bias.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"

namespace garonne::nn {
namespace {

using Transform = std::shared_ptr<const SpectralTransform>;

// What the transform of a field takes beside the spectrum that it makes.
std::int64_t analysis_transients(const Declaration& declaration, const SpectralTransform& transform,
                                 std::int64_t batch, std::int64_t rows, std::int64_t channels) {
  AllocationSketch sketch(declaration);
  const std::int64_t element = state_bytes(declaration.precision);
  const std::int64_t copy =
      has_master(declaration.precision) ? sketch.make(rows * channels, element) : 0;
  transform.sketch_analyse(sketch, batch, channels, element);
  sketch.drop(copy);
  return sketch.transient_bytes();
}

class SpectralAnalysis : public Node {
 public:
  SpectralAnalysis(Transform transform, std::int64_t batch, std::int64_t points,
                   std::int64_t channels)
      : transform_(std::move(transform)), batch_(batch), points_(points), channels_(channels) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "spectral_analysis";
    spec.cost_key = fmt::format("spectral_analysis {}x{} of {}x{}", batch_, points_,
                                transform_->text(), channels_);
    spec.gradient_aliases = {false};
    spec.adds_in_place = {true};
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        analysis_transients(declaration, *transform_, batch_, rows(), channels_);
    const std::int64_t element = state_bytes(declaration.precision);
    AllocationSketch sketch(declaration);
    const bool converts = has_master(declaration.precision);
    sketch.make(rows() * channels_, declaration.element_bytes());
    const std::int64_t sum = converts ? sketch.make(rows() * channels_, element) : 0;
    transform_->sketch_synthesise(sketch, batch_, channels_, element);
    sketch.drop(sum);
    spec.backward.transient_bytes = sketch.transient_bytes();
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        spec.backward.floating_point_operations = transform_->operations(batch_, channels_);
    return spec;
  }

  std::vector<ConstantTable> tables(Precision precision) const override {
    return transform_->tables(precision);
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return transform_->analyse(context, for_transform(inputs[0]),
                               /*adjoint=*/false);
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor given =
        arguments.output_gradient.view({batch_, 2, transform_->modes(), channels_});
    at::Tensor gradient = arguments.add_to[0];
    if (!gradient.defined()) {
      const auto type = compute_scalar_type(context.precision);
      gradient = at::empty({rows(), channels_}, given.options().dtype(type)).zero_();
    }
    const at::Tensor there = gradient;
    const at::Tensor sum = for_transform(there);
    transform_->synthesise(context, given, sum, /*adjoint=*/true);
    if (!sum.is_same(there)) there.copy_(sum);
    return {gradient};
  }

 private:
  std::int64_t rows() const { return batch_ * points_; }

  Transform transform_;
  std::int64_t batch_;
  std::int64_t points_;
  std::int64_t channels_;
};

class SpectralContractionNode : public Node {
 public:
  SpectralContractionNode(ContractionSizes sizes,
                          std::shared_ptr<const SpectralContraction> contraction)
      : sizes_(std::move(sizes)), contraction_(std::move(contraction)) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "spectral_contraction";
    spec.cost_key = fmt::format("spectral_contraction {}x{} {}x{} {}", sizes_.batch, sizes_.modes(),
                                sizes_.outputs, sizes_.inputs, contraction_->key());
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    const std::int64_t element = state_bytes(declaration.precision);
    const auto transients = [&](bool backward) {
      AllocationSketch sketch(declaration);
      const std::int64_t parameters =
          sketch.make(converted_parameter_bytes(*contraction_, declaration), 1);
      if (backward) {
        contraction_->sketch_backward(sketch, element);
      } else {
        contraction_->sketch_forward(sketch, element);
      }
      sketch.drop(parameters);
      return sketch.transient_bytes();
    };
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = transients(false);
    spec.backward.transient_bytes = transients(true);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        contraction_->operations();
    spec.backward.floating_point_operations = 2 * contraction_->operations();
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    return contraction_->forward(spectrum(inputs[0], sizes_.inputs), converted(parameters));
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    return {contraction_->backward(spectrum(arguments.inputs[0], sizes_.inputs),
                                   spectrum(arguments.output_gradient, sizes_.outputs),
                                   converted(arguments.parameters),
                                   arguments.parameter_gradients.data())};
  }

 private:
  at::Tensor spectrum(const at::Tensor& value, std::int64_t channels) const {
    return value.view({sizes_.batch, 2, sizes_.modes(), channels});
  }

  static std::vector<at::Tensor> converted(const std::vector<at::Tensor>& parameters) {
    std::vector<at::Tensor> all;
    for (const auto& parameter : parameters) all.push_back(for_transform(parameter));
    return all;
  }

  ContractionSizes sizes_;
  std::shared_ptr<const SpectralContraction> contraction_;
};

class SpectralSynthesis : public Node {
 public:
  SpectralSynthesis(Transform transform, std::int64_t batch, std::int64_t points,
                    std::int64_t inputs, std::int64_t outputs)
      : transform_(std::move(transform)),
        batch_(batch),
        points_(points),
        inputs_(inputs),
        outputs_(outputs) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "spectral_synthesis";
    spec.cost_key = fmt::format("spectral_synthesis {}x{} of {} {}x{}", batch_, points_,
                                transform_->text(), outputs_, inputs_);
    spec.gradient_aliases = {false, false};
    // In bfloat16 a product cannot be added to a gradient without one of its own first.
    spec.adds_in_place = {!has_master(declaration.precision), false};
    spec.pins_inputs = {true, false};
    const ProductTransients transients = product_transients(declaration, rows(), outputs_, inputs_);
    const std::int64_t element = state_bytes(declaration.precision);
    const bool converts = has_master(declaration.precision);
    {
      AllocationSketch sketch(declaration);
      sketch.make(rows() * outputs_, declaration.element_bytes());
      sketch.pass(transients.forward_bytes);
      const std::int64_t sum = converts ? sketch.make(rows() * outputs_, element) : 0;
      transform_->sketch_synthesise(sketch, batch_, outputs_, element);
      sketch.drop(sum);
      spec.forward.transient_bytes = spec.forward_keep.transient_bytes = sketch.transient_bytes();
    }
    {
      AllocationSketch sketch(declaration);
      sketch.pass(transients.weight_gradient_bytes);
      sketch.make(rows() * inputs_, declaration.element_bytes());
      sketch.pass(transients.input_gradient_bytes);
      const std::int64_t given = converts ? sketch.make(rows() * outputs_, element) : 0;
      transform_->sketch_analyse(sketch, batch_, outputs_, element);
      sketch.drop(given);
      spec.backward.transient_bytes = sketch.transient_bytes();
    }
    const double skip = 2.0 * static_cast<double>(rows()) * static_cast<double>(inputs_ * outputs_);
    const double transform = transform_->operations(batch_, outputs_);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        skip + transform;
    spec.backward.floating_point_operations = 2 * skip + transform;
    return spec;
  }

  std::vector<ConstantTable> tables(Precision precision) const override {
    return transform_->tables(precision);
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    at::Tensor y =
        context.products->forward(context.queue, inputs[0], parameters[0], parameters[1]);
    const at::Tensor sum = for_transform(y);
    transform_->synthesise(context, inputs[1].view({batch_, 2, transform_->modes(), outputs_}), sum,
                           /*adjoint=*/false);
    if (sum.is_same(y)) return y;
    return y.copy_(sum);
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    auto& gradients = arguments.parameter_gradients;
    context.products->weight_gradient(context.queue, given, arguments.inputs[0],
                                      gradients[0].target, gradients[0].accumulate);
    kernels::bias_gradient(context.queue, context.element_type(), given.const_data_ptr(),
                           gradients[1].target.data_ptr(), gradients[1].accumulate, rows(),
                           outputs_);
    // Before the transform, whose scratch then comes on top of it, whether it is new or not.
    const at::Tensor of_x = skip_gradient(context, arguments);
    return {of_x, transform_->analyse(context, for_transform(given), /*adjoint=*/true)};
  }

 private:
  std::int64_t rows() const { return batch_ * points_; }

  // In a new storage, or added to what is there.
  at::Tensor skip_gradient(const Context& context, const BackwardArguments& arguments) const {
    const at::Tensor& given = arguments.output_gradient;
    if (!arguments.add_to[0].defined())
      return context.products->input_gradient(context.queue, given, arguments.parameters[0]);
    at::Tensor existing = arguments.add_to[0];
    return existing.addmm_(given, arguments.parameters[0]);
  }

  Transform transform_;
  std::int64_t batch_;
  std::int64_t points_;
  std::int64_t inputs_;
  std::int64_t outputs_;
};

}  // namespace

std::unique_ptr<Node> make_spectral_analysis(Transform transform, std::int64_t batch,
                                             std::int64_t points, std::int64_t channels) {
  return std::make_unique<SpectralAnalysis>(std::move(transform), batch, points, channels);
}
std::unique_ptr<Node> make_spectral_contraction(
    const ContractionSizes& sizes, std::shared_ptr<const SpectralContraction> contraction) {
  return std::make_unique<SpectralContractionNode>(sizes, std::move(contraction));
}
std::unique_ptr<Node> make_spectral_synthesis(Transform transform, std::int64_t batch,
                                              std::int64_t points, std::int64_t inputs,
                                              std::int64_t outputs) {
  return std::make_unique<SpectralSynthesis>(std::move(transform), batch, points, inputs, outputs);
}

}  // namespace garonne::nn
