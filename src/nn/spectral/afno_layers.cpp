#include "nn/spectral/afno_layers.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cmath>

#include "kernels/bias.hpp"
#include "nn/element_type.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

using Transform = std::shared_ptr<const SpectralTransform>;

class OrthonormalTransform : public Node {
 public:
  OrthonormalTransform(Transform transform, std::int64_t batch, std::int64_t points,
                       std::int64_t whole_points, std::int64_t channels)
      : transform_(std::move(transform)),
        batch_(batch),
        points_(points),
        channels_(channels),
        root_(std::sqrt(static_cast<double>(whole_points))) {}

  std::vector<ConstantTable> tables(Precision precision) const override {
    return transform_->tables(precision);
  }

 protected:
  std::int64_t rows() const { return batch_ * points_; }
  double operations() const { return transform_->operations(batch_, channels_); }
  std::string key(const char* kind) const {
    return fmt::format("{} {}x{}x{} modes {}", kind, batch_, points_, channels_,
                       transform_->modes());
  }

  // x in the type of the transform -> its spectrum times `factor`.
  at::Tensor analyse(const Context& context, const at::Tensor& x, bool adjoint,
                     double factor) const {
    const at::Tensor real = x.to(state_scalar_type(context.precision));
    return transform_->analyse(context, real, adjoint).mul_(factor);
  }
  std::int64_t analysis_transients(const Declaration& declaration) const {
    AllocationSketch sketch(declaration);
    const bool converts = has_master(declaration.precision);
    const std::int64_t element = state_bytes(declaration.precision);
    const std::int64_t copy = converts ? sketch.make(rows() * channels_, element) : 0;
    transform_->sketch_analyse(sketch, batch_, channels_, element);
    sketch.drop(copy);
    return sketch.transient_bytes();
  }

  Transform transform_;
  std::int64_t batch_;
  std::int64_t points_;
  std::int64_t channels_;
  double root_;
};

class OrthonormalAnalysis : public OrthonormalTransform {
 public:
  using OrthonormalTransform::OrthonormalTransform;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "orthonormal_analysis";
    spec.cost_key = key("orthonormal_analysis");
    spec.gradient_aliases = {false};
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        analysis_transients(declaration);
    AllocationSketch sketch(declaration);
    const std::int64_t element = state_bytes(declaration.precision);
    const std::int64_t sum = sketch.make(rows() * channels_, element);
    transform_->sketch_synthesise(sketch, batch_, channels_, element);
    if (has_master(declaration.precision)) {
      sketch.make(rows() * channels_, declaration.element_bytes());
      sketch.drop(sum);
    }
    spec.backward.transient_bytes = sketch.transient_bytes();
    set_operations(spec, operations(), operations());
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return analyse(context, inputs[0], /*adjoint=*/false, root_);
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    at::Tensor gradient = at::empty({rows(), channels_}, given.options()).zero_();
    transform_->synthesise(context, given.view({batch_, 2, transform_->modes(), channels_}),
                           gradient,
                           /*adjoint=*/true);
    gradient.mul_(root_);
    return {gradient.to(compute_scalar_type(context.precision))};
  }
};

class OrthonormalSynthesis : public OrthonormalTransform {
 public:
  using OrthonormalTransform::OrthonormalTransform;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "orthonormal_synthesis";
    spec.cost_key = key("orthonormal_synthesis");
    spec.gradient_aliases = {false, true};
    const std::int64_t element = state_bytes(declaration.precision);
    AllocationSketch sketch(declaration);
    const std::int64_t sum = sketch.make(rows() * channels_, element);
    const std::int64_t scaled = sketch.make(batch_ * 2 * transform_->modes() * channels_, element);
    transform_->sketch_synthesise(sketch, batch_, channels_, element);
    sketch.drop(scaled);
    if (has_master(declaration.precision)) {
      sketch.make(rows() * channels_, declaration.element_bytes());
      sketch.drop(sum);
    }
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = sketch.transient_bytes();
    spec.backward.transient_bytes = analysis_transients(declaration);
    set_operations(spec, operations(), operations());
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor sum = at::empty({rows(), channels_}, inputs[0].options());
    sum.copy_(inputs[1]);
    {
      const at::Tensor scaled = at::mul(inputs[0], 1 / root_);
      transform_->synthesise(context, scaled.view({batch_, 2, transform_->modes(), channels_}), sum,
                             /*adjoint=*/false);
    }
    return sum.to(compute_scalar_type(context.precision));
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    at::Tensor of_spectrum;
    if (arguments.wanted[0]) of_spectrum = analyse(context, given, /*adjoint=*/true, 1 / root_);
    return {of_spectrum, given};
  }
};

class SpectralBlockLinear : public Node {
 public:
  SpectralBlockLinear(const SpectralBlocks& sizes, SpectralActivation activation, double threshold)
      : sizes_(sizes), activation_(activation), threshold_(threshold) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "spectral_block_linear";
    spec.cost_key = fmt::format("spectral_block_linear {}x{}x{}x{} {}", sizes_.batch, sizes_.modes,
                                sizes_.blocks, sizes_.size, relu() ? "relu" : "shrink");
    spec.gradient_aliases = {false};
    spec.overwrites_gradient = {true};
    spec.pins_inputs = {true};
    spec.pins_output = true;
    const std::int64_t element = state_bytes(declaration.precision);
    const bool converts = has_master(declaration.precision);
    const std::int64_t weights = 2 * sizes_.blocks * sizes_.size * sizes_.size;
    const std::int64_t converted = converts ? declaration.allocation(weights * element) : 0;
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = converted;
    spec.backward.transient_bytes = declaration.allocation(sizes_.elements() * element) + converted;
    const double products = 8.0 * static_cast<double>(sizes_.batch * sizes_.modes) *
                            static_cast<double>(sizes_.blocks * sizes_.size * sizes_.size);
    set_operations(spec, products, 2 * products);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    at::Tensor out = at::empty({sizes_.batch, 2, sizes_.modes, sizes_.blocks * sizes_.size},
                               inputs[0].options());
    out.copy_(parameters[1].view({1, 2, 1, sizes_.blocks * sizes_.size}));
    const at::Tensor weight = weights_of(context, parameters[0]);
    for (std::int64_t b = 0; b < sizes_.batch; ++b) {
      const Parts x = parts(inputs[0], b);
      add_product(parts(out, b), x, {weight.select(0, 0), weight.select(0, 1)}, 1);
    }
    if (relu()) {
      at::relu_(out);
    } else {
      at::softshrink_out(out, out, threshold_);
    }
    return out;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    at::Tensor through = at::empty_like(given);
    const at::Tensor output = arguments.output.view(given.sizes());
    // What was cut off is zero in the output.
    if (relu()) {
      at::threshold_backward_out(through, given, output, 0);
    } else {
      at::softshrink_backward_out(through, given, output, 0);
    }
    add_parameter_gradients(context, arguments, through);
    if (!arguments.wanted[0]) return {at::Tensor()};
    at::Tensor gradient = arguments.overwrite[0] ? given : at::empty_like(given);
    gradient.zero_();
    const at::Tensor weight = weights_of(context, arguments.parameters[0]);
    // dx = dy · conj(w)ᵀ
    const Parts turned{weight.select(0, 0).transpose(1, 2), weight.select(0, 1).transpose(1, 2)};
    for (std::int64_t b = 0; b < sizes_.batch; ++b)
      add_product(parts(gradient, b), parts(through, b), turned, -1);
    return {gradient};
  }

 private:
  struct Parts {
    at::Tensor re;  // [blocks, modes, size] or [blocks, size, size]
    at::Tensor im;
  };

  bool relu() const { return activation_ == SpectralActivation::Relu; }

  Parts parts(const at::Tensor& spectrum, std::int64_t entry) const {
    const at::Tensor by_block =
        spectrum.view({sizes_.batch, 2, sizes_.modes, sizes_.blocks, sizes_.size})
            .select(0, entry)
            .transpose(1, 2);
    return {by_block.select(0, 0), by_block.select(0, 1)};
  }

  at::Tensor weights_of(const Context& context, const at::Tensor& weight) const {
    return weight.view({2, sizes_.blocks, sizes_.size, sizes_.size})
        .to(state_scalar_type(context.precision));
  }

  // y += x · w, or x · conj(w) where `sign` is -1.
  static void add_product(Parts y, const Parts& x, const Parts& w, int sign) {
    y.re.baddbmm_(x.re, w.re);
    y.re.baddbmm_(x.im, w.im, 1, -sign);
    y.im.baddbmm_(x.im, w.re);
    y.im.baddbmm_(x.re, w.im, 1, sign);
  }

  // dw = conj(x)ᵀ · dy
  void add_parameter_gradients(const Context& context, const BackwardArguments& arguments,
                               const at::Tensor& through) const {
    const ParameterGradient& weight = arguments.parameter_gradients[0];
    const ParameterGradient& bias = arguments.parameter_gradients[1];
    const at::Tensor both = weight.target.view({2, sizes_.blocks, sizes_.size, sizes_.size});
    at::Tensor re = both.select(0, 0);
    at::Tensor im = both.select(0, 1);
    const std::int64_t channels = sizes_.blocks * sizes_.size;
    for (std::int64_t b = 0; b < sizes_.batch; ++b) {
      const bool add = weight.accumulate || b > 0;
      const Parts x = parts(arguments.inputs[0], b);
      const Parts dy = parts(through, b);
      re.baddbmm_(x.re.transpose(1, 2), dy.re, add ? 1 : 0);
      re.baddbmm_(x.im.transpose(1, 2), dy.im);
      im.baddbmm_(x.re.transpose(1, 2), dy.im, add ? 1 : 0);
      im.baddbmm_(x.im.transpose(1, 2), dy.re, 1, -1);
      for (std::int64_t part = 0; part < 2; ++part) {
        const at::Tensor rows = through.view({sizes_.batch, 2, -1}).select(0, b).select(0, part);
        at::Tensor target = bias.target.narrow(0, part * channels, channels);
        kernels::bias_gradient(context.queue, kernels::accumulation_type(context.element_type()),
                               rows.const_data_ptr(), target.data_ptr(), bias.accumulate || b > 0,
                               sizes_.modes, channels);
      }
    }
  }

  SpectralBlocks sizes_;
  SpectralActivation activation_;
  double threshold_;
};

}  // namespace

std::unique_ptr<Node> make_orthonormal_analysis(Transform transform, std::int64_t batch,
                                                std::int64_t points, std::int64_t whole_points,
                                                std::int64_t channels) {
  return std::make_unique<OrthonormalAnalysis>(std::move(transform), batch, points, whole_points,
                                               channels);
}
std::unique_ptr<Node> make_orthonormal_synthesis(Transform transform, std::int64_t batch,
                                                 std::int64_t points, std::int64_t whole_points,
                                                 std::int64_t channels) {
  return std::make_unique<OrthonormalSynthesis>(std::move(transform), batch, points, whole_points,
                                                channels);
}
std::unique_ptr<Node> make_spectral_block_linear(const SpectralBlocks& sizes,
                                                 SpectralActivation activation, double threshold) {
  return std::make_unique<SpectralBlockLinear>(sizes, activation, threshold);
}

}  // namespace garonne::nn
