#include "nn/spectral/spectral_contraction.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <functional>
#include <numeric>

namespace garonne::nn {
namespace spectral {
namespace {

// x as a matrix [(sample, part), channels] for each mode, without a copy.
at::Tensor by_mode(const at::Tensor& x) {
  const std::int64_t modes = x.size(2);
  const std::int64_t channels = x.size(3);
  return x.as_strided({modes, 2 * x.size(0), channels}, {channels, modes * channels, 1});
}

// Real or imaginary part as [modes, batch, channels].
at::Tensor part(const at::Tensor& x, std::int64_t which) {
  return x.select(1, which).transpose(0, 1);
}

// [modes, (sample, part), (channel, part)]: the rows (re, im) and (im, -re) of each sample. Its
// products with real matrices of twice the columns are those with conjugates.
at::Tensor turned_pairs(const at::Tensor& gradient) {
  const std::int64_t batch = gradient.size(0);
  const std::int64_t modes = gradient.size(2);
  const std::int64_t channels = gradient.size(3);
  const at::Tensor pairs = at::empty({modes, batch, 2, channels, 2}, gradient.options());
  const at::Tensor real = part(gradient, 0);
  const at::Tensor imaginary = part(gradient, 1);
  const auto slot = [&](std::int64_t row, std::int64_t column) {
    return pairs.select(2, row).select(-1, column);
  };
  slot(0, 0).copy_(real);
  slot(0, 1).copy_(imaginary);
  slot(1, 0).copy_(imaginary);
  at::Tensor last = slot(1, 1);
  at::neg_out(last, real);
  return pairs.view({modes, 2 * batch, 2 * channels});
}

}  // namespace

at::Tensor multiply_by_mode(const at::Tensor& x, const at::Tensor& weight) {
  const std::int64_t batch = x.size(0);
  const std::int64_t modes = x.size(2);
  const std::int64_t inputs = x.size(3);
  const std::int64_t outputs = weight.numel() / (2 * modes * inputs);
  const at::Tensor products =
      at::bmm(by_mode(x), weight.view({modes, inputs, 2 * outputs}))
          .view({modes, batch, 2, outputs, 2});  // [mode, sample, part of x, output, part of W]
  const auto slot = [&](std::int64_t row, std::int64_t column) {
    return products.select(2, row).select(-1, column);
  };
  at::Tensor y = at::empty({batch, 2, modes, outputs}, x.options());
  at::Tensor real = part(y, 0);
  at::Tensor imaginary = part(y, 1);
  at::sub_out(real, slot(0, 0), slot(1, 1));
  at::add_out(imaginary, slot(0, 1), slot(1, 0));
  return y;
}

at::Tensor multiply_by_mode_backward(const at::Tensor& x, const at::Tensor& gradient,
                                     const at::Tensor& weight, at::Tensor target, bool accumulate) {
  const std::int64_t batch = x.size(0);
  const std::int64_t modes = x.size(2);
  const std::int64_t inputs = x.size(3);
  const std::int64_t outputs = gradient.size(3);
  const at::Tensor pairs = turned_pairs(gradient);
  at::Tensor weight_gradient = target.view({modes, inputs, 2 * outputs});
  if (accumulate) {
    weight_gradient.baddbmm_(by_mode(x).transpose(1, 2), pairs);
  } else {
    at::bmm_out(weight_gradient, by_mode(x).transpose(1, 2), pairs);
  }
  const at::Tensor rows = at::bmm(pairs, weight.view({modes, inputs, 2 * outputs}).transpose(1, 2));
  at::Tensor x_gradient = at::empty({batch, 2, modes, inputs}, x.options());
  x_gradient.copy_(rows.view({modes, batch, 2, inputs}).permute({1, 2, 0, 3}));
  return x_gradient;
}

std::int64_t sketch_by_mode(AllocationSketch& sketch, const ContractionSizes& sizes, std::int64_t,
                            std::int64_t outputs, std::int64_t element_bytes) {
  const std::int64_t numbers = 2 * sizes.batch * sizes.modes() * outputs;
  const std::int64_t products = sketch.make(2 * numbers, element_bytes);
  const std::int64_t made = sketch.make(numbers, element_bytes);
  sketch.drop(products);
  return made;
}

std::int64_t sketch_by_mode_backward(AllocationSketch& sketch, const ContractionSizes& sizes,
                                     std::int64_t inputs, std::int64_t outputs,
                                     std::int64_t element_bytes) {
  const std::int64_t rows = 2 * sizes.batch * sizes.modes();
  const std::int64_t pairs = sketch.make(2 * rows * outputs, element_bytes);
  const std::int64_t products = sketch.make(rows * inputs, element_bytes);
  const std::int64_t made = sketch.make(rows * inputs, element_bytes);
  sketch.drop(pairs);
  sketch.drop(products);
  return made;
}

}  // namespace spectral

namespace {

class DenseContraction : public SpectralContraction {
 public:
  DenseContraction(ContractionSizes sizes, double deviation)
      : sizes_(std::move(sizes)), deviation_(deviation) {}

  std::string key() const override { return "dense"; }

  std::vector<ContractionParameter> parameters() const override {
    std::vector<std::int64_t> shape = sizes_.kept;
    shape.insert(shape.end(), {sizes_.inputs, sizes_.outputs, 2});
    return {{"weight", shape, {deviation_, 0}, /*by_first_axis=*/true}};
  }

  at::Tensor forward(const at::Tensor& x,
                     const std::vector<at::Tensor>& parameters) const override {
    return spectral::multiply_by_mode(x, parameters[0]);
  }

  at::Tensor backward(const at::Tensor& x, const at::Tensor& gradient,
                      const std::vector<at::Tensor>& parameters,
                      const ParameterGradient* gradients) const override {
    return spectral::multiply_by_mode_backward(x, gradient, parameters[0], gradients[0].target,
                                               gradients[0].accumulate);
  }

  std::int64_t sketch_forward(AllocationSketch& sketch, std::int64_t element_bytes) const override {
    return spectral::sketch_by_mode(sketch, sizes_, sizes_.inputs, sizes_.outputs, element_bytes);
  }
  std::int64_t sketch_backward(AllocationSketch& sketch,
                               std::int64_t element_bytes) const override {
    return spectral::sketch_by_mode_backward(sketch, sizes_, sizes_.inputs, sizes_.outputs,
                                             element_bytes);
  }
  double operations() const override {
    return 8.0 * static_cast<double>(sizes_.batch * sizes_.modes()) *
           static_cast<double>(sizes_.inputs * sizes_.outputs);
  }

 private:
  ContractionSizes sizes_;
  double deviation_;
};

}  // namespace

std::int64_t ContractionSizes::modes() const {
  return std::accumulate(kept.begin(), kept.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<std::int64_t> ContractionSizes::whole() const {
  std::vector<std::int64_t> all = kept;
  if (whole_first > 0) all[0] = whole_first;
  return all;
}

std::unique_ptr<SpectralContraction> make_dense_contraction(const ContractionSizes& sizes,
                                                            double deviation) {
  return std::make_unique<DenseContraction>(sizes, deviation);
}

std::int64_t converted_parameter_bytes(const SpectralContraction& contraction,
                                       const Declaration& declaration) {
  if (!has_master(declaration.precision)) return 0;
  std::int64_t bytes = 0;
  for (const auto& parameter : contraction.parameters()) {
    bytes += declaration.allocation(std::accumulate(parameter.shape.begin(), parameter.shape.end(),
                                                    std::int64_t{4}, std::multiplies<>()));
  }
  return bytes;
}

}  // namespace garonne::nn
