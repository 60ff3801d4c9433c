#include "nn/spectral/spectral_layer.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>

#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class SpectralLayer : public Node {
 public:
  SpectralLayer(std::int64_t batch, std::vector<std::int64_t> points,
                const Frequencies& frequencies, std::int64_t inputs, std::int64_t outputs,
                std::shared_ptr<const SpectralContraction> contraction)
      : batch_(batch),
        points_(std::move(points)),
        inputs_(inputs),
        outputs_(outputs),
        rows_(std::accumulate(points_.begin(), points_.end(), batch, std::multiplies<>())),
        transform_(points_, frequencies),
        contraction_(std::move(contraction)) {
    for (const auto& axis : frequencies)
      frequencies_text_ += fmt::format(" {}..{}", axis.front(), axis.back());
  }

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "spectral_layer";
    spec.cost_key =
        fmt::format("spectral_layer {}x{} of{} {}x{} {}", batch_, fmt::join(points_, "x"),
                    frequencies_text_, outputs_, inputs_, contraction_->key());
    const std::int64_t element = state_bytes(declaration.precision);
    spec.private_slot_bytes = {
        declaration.allocation(batch_ * 2 * transform_.modes() * inputs_ * element)};
    spec.gradient_aliases = {false};
    spec.adds_in_place = {true};
    spec.pins_inputs = {true};
    spec.forward.transient_bytes = forward_transients(declaration, /*keep=*/false);
    spec.forward_keep.transient_bytes = forward_transients(declaration, /*keep=*/true);
    spec.backward.transient_bytes = backward_transients(declaration, /*in_place=*/false);
    spec.in_place_transient_bytes = backward_transients(declaration, /*in_place=*/true);
    const double skip = 2.0 * static_cast<double>(rows_) * static_cast<double>(inputs_ * outputs_);
    const double transforms =
        transform_.operations(batch_, inputs_) + transform_.operations(batch_, outputs_);
    const double contraction = contraction_->operations();
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        skip + transforms + contraction;
    spec.backward.floating_point_operations = 2 * skip + transforms + 2 * contraction;
    // A product an axis each way, those of the modes, and the skip.
    const int axes = static_cast<int>(points_.size());
    set_kernels(spec, 2 * axes + 4, 2 * axes + 8);
    return spec;
  }

  std::vector<ConstantTable> tables(Precision precision) const override {
    return transform_.tables(precision);
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record* record) const override {
    const at::Tensor& x = inputs[0];
    at::Tensor spectrum = transform_.analyse(context, for_transform(x), /*adjoint=*/false);
    at::Tensor product = contraction_->forward(spectrum, contraction_parameters(parameters));
    if (record != nullptr) record->slots = {spectrum};
    spectrum.reset();
    // A constant is what the zero frequency stands for: no pass over the points.
    product.select(1, 0).select(1, transform_.zero_mode()).add_(for_transform(parameters[1]));
    at::Tensor y = context.products->forward(context.queue, x, parameters[0], at::Tensor());
    const at::Tensor sum = for_transform(y);
    transform_.synthesise(context, product, sum, /*adjoint=*/false);
    if (sum.is_same(y)) return y;
    return y.copy_(sum);
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    auto& gradients = arguments.parameter_gradients;
    context.products->weight_gradient(context.queue, given, arguments.inputs[0],
                                      gradients[0].target, gradients[0].accumulate);
    at::Tensor spectrum = transform_.analyse(context, for_transform(given), /*adjoint=*/true);
    add_bias_gradient(spectrum, gradients[1]);
    spectrum =
        contraction_->backward(arguments.record->slots[0], spectrum,
                               contraction_parameters(arguments.parameters), gradients.data() + 2);
    at::Tensor gradient = skip_gradient(context, arguments);
    const at::Tensor sum = for_transform(gradient);
    transform_.synthesise(context, spectrum, sum, /*adjoint=*/true);
    if (!sum.is_same(gradient)) gradient.copy_(sum);
    return {gradient};
  }

 private:
  std::vector<at::Tensor> contraction_parameters(const std::vector<at::Tensor>& parameters) const {
    std::vector<at::Tensor> converted;
    for (std::size_t p = 2; p < parameters.size(); ++p)
      converted.push_back(for_transform(parameters[p]));
    return converted;
  }

  void add_bias_gradient(const at::Tensor& spectrum, const ParameterGradient& gradient) const {
    const at::Tensor by_sample = spectrum.select(1, 0).select(1, transform_.zero_mode());
    at::Tensor target = gradient.target;
    if (!gradient.accumulate) {
      at::sum_out(target, by_sample, {0});
      return;
    }
    for (std::int64_t b = 0; b < batch_; ++b) target.add_(by_sample.select(0, b));
  }

  // In a new storage, or added to what is there.
  at::Tensor skip_gradient(const Context& context, const BackwardArguments& arguments) const {
    const at::Tensor& given = arguments.output_gradient;
    if (!arguments.add_to[0].defined())
      return context.products->input_gradient(context.queue, given, arguments.parameters[0]);
    at::Tensor existing = arguments.add_to[0];
    if (existing.scalar_type() != at::kBFloat16)
      return existing.addmm_(given, arguments.parameters[0]);
    return existing.add_(
        context.products->input_gradient(context.queue, given, arguments.parameters[0]));
  }

  std::int64_t forward_transients(const Declaration& declaration, bool keep) const {
    AllocationSketch sketch(declaration);
    const std::int64_t element = state_bytes(declaration.precision);
    const bool converts = has_master(declaration.precision);
    std::int64_t x = converts ? sketch.make(rows_ * inputs_, element) : 0;
    const std::int64_t spectrum = transform_.sketch_analyse(sketch, batch_, inputs_, element);
    sketch.drop(x);
    const std::int64_t parameters =
        sketch.make(converted_parameter_bytes(*contraction_, declaration), 1);
    const std::int64_t product = contraction_->sketch_forward(sketch, element);
    sketch.drop(parameters);
    if (!keep) sketch.drop(spectrum);
    sketch.pass(converts ? declaration.allocation(outputs_ * element) : 0);
    const ProductTransients transients = product_transients(declaration, rows_, outputs_, inputs_);
    const std::int64_t y = sketch.make(rows_ * outputs_, declaration.element_bytes());
    sketch.pass(transients.forward_bytes);
    const std::int64_t sum = converts ? sketch.make(rows_ * outputs_, element) : 0;
    transform_.sketch_synthesise(sketch, batch_, outputs_, element);
    sketch.drop(sum);
    sketch.drop(product);
    static_cast<void>(y);
    return sketch.transient_bytes();
  }

  std::int64_t backward_transients(const Declaration& declaration, bool in_place) const {
    AllocationSketch sketch(declaration);
    const std::int64_t element = state_bytes(declaration.precision);
    const bool converts = has_master(declaration.precision);
    const ProductTransients transients = product_transients(declaration, rows_, outputs_, inputs_);
    sketch.pass(transients.weight_gradient_bytes);
    const std::int64_t given = converts ? sketch.make(rows_ * outputs_, element) : 0;
    const std::int64_t spectrum = transform_.sketch_analyse(sketch, batch_, outputs_, element);
    sketch.drop(given);
    const std::int64_t parameters =
        sketch.make(converted_parameter_bytes(*contraction_, declaration), 1);
    const std::int64_t product = contraction_->sketch_backward(sketch, element);
    sketch.drop(parameters);
    sketch.drop(spectrum);
    const std::int64_t gradient =
        declaration.allocation(rows_ * inputs_ * declaration.element_bytes());
    if (!in_place) {
      sketch.make(gradient, 1);
      sketch.pass(transients.input_gradient_bytes);
    } else if (converts) {
      sketch.pass(gradient + transients.input_gradient_bytes);
    }
    const std::int64_t sum = converts ? sketch.make(rows_ * inputs_, element) : 0;
    transform_.sketch_synthesise(sketch, batch_, inputs_, element);
    sketch.drop(sum);
    sketch.drop(product);
    return sketch.transient_bytes();
  }

  std::int64_t batch_;
  std::vector<std::int64_t> points_;
  std::int64_t inputs_;
  std::int64_t outputs_;
  std::int64_t rows_;
  SpectralTransform transform_;
  std::shared_ptr<const SpectralContraction> contraction_;
  std::string frequencies_text_;
};

}  // namespace

std::unique_ptr<Node> make_spectral_layer(std::int64_t batch, std::vector<std::int64_t> points,
                                          const Frequencies& frequencies, std::int64_t inputs,
                                          std::int64_t outputs,
                                          std::shared_ptr<const SpectralContraction> contraction) {
  return std::make_unique<SpectralLayer>(batch, std::move(points), frequencies, inputs, outputs,
                                         std::move(contraction));
}

}  // namespace garonne::nn
