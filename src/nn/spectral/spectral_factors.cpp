// Factorised spectral weights: Tucker and CP.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "nn/spectral/spectral_contraction.hpp"

namespace garonne::nn {
namespace {

using Tensors = std::vector<at::Tensor>;

// A copy, since a parameter in a flat range may start where no complex number can.
at::Tensor complex_of(const at::Tensor& real) {
  std::vector<std::int64_t> shape = real.sizes().vec();
  shape.pop_back();
  const auto type = real.scalar_type() == at::kDouble ? at::kComplexDouble : at::kComplexFloat;
  const at::Tensor result = at::empty(shape, real.options().dtype(type));
  at::view_as_real(result).copy_(real);
  return result;
}

void write(const ParameterGradient& gradient, const at::Tensor& value) {
  at::Tensor target = gradient.target;
  const at::Tensor flat = value.reshape({-1});
  if (gradient.accumulate) {
    target.add_(flat);
  } else {
    target.copy_(flat);
  }
}

// x [batch, 2, modes, inputs] times one complex matrix [inputs, outputs, 2] for all modes.
at::Tensor matrix_product(const at::Tensor& x, const at::Tensor& matrix) {
  const std::int64_t inputs = x.size(3);
  const std::int64_t outputs = matrix.size(1);
  const at::Tensor products = at::mm(x.view({-1, inputs}), matrix.view({inputs, 2 * outputs}))
                                  .view({x.size(0), 2, x.size(2), outputs, 2});
  const auto slot = [&](std::int64_t row, std::int64_t column) {
    return products.select(1, row).select(-1, column);
  };
  at::Tensor y = at::empty({x.size(0), 2, x.size(2), outputs}, x.options());
  at::Tensor real = y.select(1, 0);
  at::Tensor imaginary = y.select(1, 1);
  at::sub_out(real, slot(0, 0), slot(1, 1));
  at::add_out(imaginary, slot(0, 1), slot(1, 0));
  return y;
}

at::Tensor matrix_product_backward(const at::Tensor& x, const at::Tensor& gradient,
                                   const at::Tensor& matrix, const ParameterGradient& of_matrix) {
  const std::int64_t inputs = x.size(3);
  const std::int64_t outputs = gradient.size(3);
  at::Tensor pairs =
      at::empty({x.size(0), 2, x.size(2), outputs, 2}, gradient.options());  // as turned_pairs
  const auto slot = [&](std::int64_t row, std::int64_t column) {
    return pairs.select(1, row).select(-1, column);
  };
  slot(0, 0).copy_(gradient.select(1, 0));
  slot(0, 1).copy_(gradient.select(1, 1));
  slot(1, 0).copy_(gradient.select(1, 1));
  at::Tensor last = slot(1, 1);
  at::neg_out(last, gradient.select(1, 0));
  pairs = pairs.view({-1, 2 * outputs});
  write(of_matrix, at::mm(x.view({-1, inputs}).t(), pairs));
  return at::mm(pairs, matrix.view({inputs, 2 * outputs}).t())
      .view({x.size(0), 2, x.size(2), inputs});
}

// Common to the two forms: parameters of which some make weights by mode, and a matrix for the
// inputs and one for the outputs, the last two parameters.
class FactorisedContraction : public SpectralContraction {
 public:
  FactorisedContraction(ContractionSizes sizes, bool factorized)
      : sizes_(std::move(sizes)), factorized_(factorized) {}

  at::Tensor forward(const at::Tensor& x, const Tensors& parameters) const override {
    const at::Tensor weights = steps_of(complex_parameters(parameters)).back();
    if (!factorized_) return spectral::multiply_by_mode(x, at::view_as_real(weights));
    return matrix_product(apply(matrix_product(x, input_matrix(parameters)), weights),
                          parameters.back());
  }

  at::Tensor backward(const at::Tensor& x, const at::Tensor& gradient, const Tensors& parameters,
                      const ParameterGradient* gradients) const override {
    const std::size_t count = parameters.size();
    const Tensors factors = complex_parameters(parameters);
    const Tensors steps = steps_of(factors);
    const at::Tensor& weights = steps.back();
    at::Tensor of_weights = at::empty_like(weights);
    at::Tensor of_x;
    if (factorized_) {
      const at::Tensor entered = matrix_product(x, input_matrix(parameters));
      const at::Tensor applied = apply(entered, weights);
      const at::Tensor of_applied =
          matrix_product_backward(applied, gradient, parameters.back(), gradients[count - 1]);
      const at::Tensor of_entered = apply_backward(entered, of_applied, weights, of_weights);
      of_x = matrix_product_backward(x, of_entered, input_matrix(parameters), gradients[count - 2]);
    } else {
      of_x = spectral::multiply_by_mode_backward(x, gradient, at::view_as_real(weights),
                                                 at::view_as_real(of_weights).view({-1}),
                                                 /*accumulate=*/false);
    }
    steps_backward(factors, steps, of_weights, [&](std::size_t factor, const at::Tensor& made) {
      write(gradients[factor], at::view_as_real(made));
    });
    return of_x;
  }

  // Bounds: every intermediate result of making the weights at once, and those of one backward.
  std::int64_t sketch_forward(AllocationSketch& sketch, std::int64_t element_bytes) const override {
    const std::int64_t made = making_bytes(sketch.declaration(), element_bytes);
    sketch.make(made, 1);
    const std::int64_t result = sketch_apply(sketch, element_bytes, /*backward=*/false);
    sketch.drop(made);
    return result;
  }
  std::int64_t sketch_backward(AllocationSketch& sketch,
                               std::int64_t element_bytes) const override {
    const std::int64_t made = 3 * making_bytes(sketch.declaration(), element_bytes);
    sketch.make(made, 1);
    const std::int64_t result = sketch_apply(sketch, element_bytes, /*backward=*/true);
    sketch.drop(made);
    return result;
  }

 protected:
  // Of complex parameters, without the two matrices where those are applied apart: what making
  // weights by mode comes to step by step; the last are the weights, [modes, …].
  virtual Tensors steps_of(const Tensors& factors) const = 0;
  // Hands out the gradient of each of the parameters, of its shape, by that of the weights. With
  // complex numbers a gradient is the derivative by the real part plus i times that by the
  // imaginary one, so that what was multiplied is multiplied by the conjugate.
  using Receiver = std::function<void(std::size_t factor, const at::Tensor& gradient)>;
  virtual void steps_backward(const Tensors& factors, const Tensors& steps,
                              const at::Tensor& of_weights, const Receiver& receive) const = 0;
  // x [batch, 2, modes, input rank] through weights by mode that were made without the matrices.
  virtual at::Tensor apply(const at::Tensor& x, const at::Tensor& weights) const = 0;
  virtual at::Tensor apply_backward(const at::Tensor& x, const at::Tensor& gradient,
                                    const at::Tensor& weights, at::Tensor& of_weights) const = 0;
  virtual std::int64_t input_rank() const = 0;
  virtual std::int64_t output_rank() const = 0;
  // Complex numbers of all results of steps_of.
  virtual std::int64_t made_numbers() const = 0;

  // [kept along an axis, rank] to be multiplied into the axis after `before` others.
  static at::Tensor multiply_axis(const at::Tensor& factor, const at::Tensor& tensor,
                                  std::int64_t before) {
    return at::matmul(factor, tensor.reshape({before, factor.size(1), -1}));
  }
  // Of `gradient` of what multiply_axis made: that of the factor, and that of the tensor, in the
  // shape that it was multiplied in.
  static at::Tensor of_factor(const at::Tensor& gradient, const at::Tensor& tensor,
                              std::int64_t rank) {
    const std::int64_t before = gradient.size(0);
    return at::sum(at::matmul(gradient, tensor.reshape({before, rank, -1}).mH()), {0});
  }
  static at::Tensor of_multiplied(const at::Tensor& gradient, const at::Tensor& factor) {
    return at::matmul(factor.mH(), gradient);
  }

  // Of [modes, inputs, ranks] times one matrix [ranks, outputs]: that of the matrix, and that of
  // the others.
  static at::Tensor of_matrix(const at::Tensor& gradient, const at::Tensor& left) {
    return at::mm(left.reshape({-1, left.size(2)}).mH(), gradient.reshape({-1, gradient.size(2)}));
  }
  static at::Tensor of_left(const at::Tensor& gradient, const at::Tensor& matrix) {
    return at::matmul(gradient, matrix.mH());
  }

  const ContractionSizes& sizes() const { return sizes_; }
  bool factorized() const { return factorized_; }
  std::size_t axes() const { return sizes_.kept.size(); }

 private:
  static const at::Tensor& input_matrix(const Tensors& parameters) {
    return parameters[parameters.size() - 2];
  }

  Tensors complex_parameters(const Tensors& parameters) const {
    Tensors made;
    const std::size_t count = parameters.size() - (factorized_ ? 2 : 0);
    for (std::size_t p = 0; p < count; ++p) made.push_back(complex_of(parameters[p]));
    return made;
  }

  std::int64_t making_bytes(const Declaration& declaration, std::int64_t element_bytes) const {
    std::int64_t bytes = 0;
    for (const auto& parameter : parameters()) {
      bytes += declaration.allocation(
          element_bytes * std::accumulate(parameter.shape.begin(), parameter.shape.end(),
                                          std::int64_t{1}, std::multiplies<>()));
    }
    // One rounding for each axis and matrix.
    return bytes + declaration.allocation(2 * element_bytes * made_numbers()) +
           declaration.allocation(1) * static_cast<std::int64_t>(axes() + 3);
  }

  std::int64_t sketch_apply(AllocationSketch& sketch, std::int64_t element_bytes,
                            bool backward) const {
    if (!factorized_) {
      return backward ? spectral::sketch_by_mode_backward(sketch, sizes_, sizes_.inputs,
                                                          sizes_.outputs, element_bytes)
                      : spectral::sketch_by_mode(sketch, sizes_, sizes_.inputs, sizes_.outputs,
                                                 element_bytes);
    }
    const std::int64_t numbers = 2 * sizes_.batch * sizes_.modes();
    const std::int64_t widest =
        std::max({sizes_.inputs, sizes_.outputs, input_rank(), output_rank()});
    const std::int64_t scratch = sketch.make((backward ? 8 : 5) * numbers * widest, element_bytes);
    const std::int64_t result =
        sketch.make(numbers * (backward ? sizes_.inputs : sizes_.outputs), element_bytes);
    sketch.drop(scratch);
    return result;
  }

  ContractionSizes sizes_;
  bool factorized_;
};

class TuckerContraction : public FactorisedContraction {
 public:
  TuckerContraction(const ContractionSizes& sizes, double rank, double deviation, bool factorized)
      : FactorisedContraction(sizes, factorized), ranks_(tucker_ranks(sizes, rank)) {
    double product = std::sqrt(static_cast<double>(ranks_.inputs * ranks_.outputs));
    for (const std::int64_t axis : ranks_.axes) product *= std::sqrt(static_cast<double>(axis));
    const auto factors = static_cast<double>(axes() + 3);  // with the core
    // A complex number of this deviation has parts of half the variance.
    deviation_ = std::pow(deviation / product, 1 / factors) / std::sqrt(2.0);
  }

  std::string key() const override {
    return fmt::format("tucker {} {} {} {}", fmt::join(ranks_.axes, "x"), ranks_.inputs,
                       ranks_.outputs, factorized() ? "factorized" : "reconstructed");
  }

  std::vector<ContractionParameter> parameters() const override {
    const Initialisation initialisation{deviation_, 0};
    std::vector<std::int64_t> core = ranks_.axes;
    core.insert(core.end(), {ranks_.inputs, ranks_.outputs, 2});
    std::vector<ContractionParameter> all = {{"core", core, initialisation}};
    for (std::size_t axis = 0; axis < axes(); ++axis) {
      all.push_back({fmt::format("axis.{}", axis),
                     {sizes().kept[axis], ranks_.axes[axis], 2},
                     initialisation,
                     /*by_first_axis=*/axis == 0});
    }
    all.push_back({"inputs", {sizes().inputs, ranks_.inputs, 2}, initialisation});
    all.push_back({"outputs", {ranks_.outputs, sizes().outputs, 2}, initialisation});
    return all;
  }

  double operations() const override {
    const auto points = static_cast<double>(sizes().batch * sizes().modes());
    if (!factorized()) {
      return 8.0 * points * static_cast<double>(sizes().inputs * sizes().outputs) +
             8.0 * static_cast<double>(made_numbers() * ranks_.outputs);
    }
    return 8.0 * points *
           static_cast<double>(sizes().inputs * ranks_.inputs + ranks_.inputs * ranks_.outputs +
                               ranks_.outputs * sizes().outputs);
  }

 protected:
  Tensors steps_of(const Tensors& factors) const override {
    Tensors steps;
    at::Tensor made = factors[0];
    std::int64_t before = 1;
    for (std::size_t axis = 0; axis < axes(); ++axis) {
      made = multiply_axis(factors[1 + axis], made, before);
      before *= sizes().kept[axis];
      steps.push_back(made);
    }
    steps.back() = made.reshape({sizes().modes(), ranks_.inputs, ranks_.outputs});
    if (factorized()) return steps;
    steps.push_back(at::matmul(factors[1 + axes()], steps.back()));
    steps.push_back(at::matmul(steps.back(), factors[2 + axes()]));
    return steps;
  }

  void steps_backward(const Tensors& factors, const Tensors& steps, const at::Tensor& of_weights,
                      const Receiver& receive) const override {
    at::Tensor given = of_weights;
    if (!factorized()) {
      const at::Tensor& inputs = factors[1 + axes()];
      const at::Tensor& outputs = factors[2 + axes()];
      receive(2 + axes(), of_matrix(given, steps[axes()]));
      given = of_left(given, outputs);
      receive(1 + axes(), of_factor(given, steps[axes() - 1], ranks_.inputs));
      given = of_multiplied(given, inputs);
    }
    std::int64_t before = sizes().modes();
    for (std::size_t axis = axes(); axis-- > 0;) {
      const std::int64_t kept = sizes().kept[axis];
      before /= kept;
      given = given.reshape({before, kept, -1});
      const at::Tensor& multiplied = axis == 0 ? factors[0] : steps[axis - 1];
      receive(1 + axis, of_factor(given, multiplied, ranks_.axes[axis]));
      given = of_multiplied(given, factors[1 + axis]);
    }
    receive(0, given);
  }

  at::Tensor apply(const at::Tensor& x, const at::Tensor& weights) const override {
    return spectral::multiply_by_mode(x, at::view_as_real(weights));
  }

  at::Tensor apply_backward(const at::Tensor& x, const at::Tensor& gradient,
                            const at::Tensor& weights, at::Tensor& of_weights) const override {
    return spectral::multiply_by_mode_backward(x, gradient, at::view_as_real(weights),
                                               at::view_as_real(of_weights).view({-1}),
                                               /*accumulate=*/false);
  }

  std::int64_t input_rank() const override { return ranks_.inputs; }
  std::int64_t output_rank() const override { return ranks_.outputs; }
  std::int64_t made_numbers() const override {
    std::int64_t all = 0;
    std::int64_t size = ranks_.inputs * ranks_.outputs;
    for (const std::int64_t rank : ranks_.axes) size *= rank;
    for (std::size_t axis = 0; axis < axes(); ++axis) {
      size = size / ranks_.axes[axis] * sizes().kept[axis];
      all += size;
    }
    if (factorized()) return all;
    return all + sizes().modes() * sizes().inputs * (ranks_.outputs + sizes().outputs);
  }

 private:
  TuckerRanks ranks_;
  double deviation_ = 0;
};

class CpContraction : public FactorisedContraction {
 public:
  CpContraction(const ContractionSizes& sizes, double rank, double deviation, bool factorized)
      : FactorisedContraction(sizes, factorized), rank_(cp_rank(sizes, rank)) {
    const double root = std::sqrt(static_cast<double>(rank_));
    deviation_ = std::pow(deviation / root, 1 / static_cast<double>(axes() + 2)) / std::sqrt(2.0);
  }

  std::string key() const override {
    return fmt::format("cp {} {}", rank_, factorized() ? "factorized" : "reconstructed");
  }

  std::vector<ContractionParameter> parameters() const override {
    const Initialisation initialisation{deviation_, 0};
    // The library starts these at 1; a random start differs by a factor of the others only.
    std::vector<ContractionParameter> all = {{"weights", {rank_, 2}, {1 / std::sqrt(2.0), 0}}};
    for (std::size_t axis = 0; axis < axes(); ++axis) {
      all.push_back({fmt::format("axis.{}", axis),
                     {sizes().kept[axis], rank_, 2},
                     initialisation,
                     /*by_first_axis=*/axis == 0});
    }
    all.push_back({"inputs", {sizes().inputs, rank_, 2}, initialisation});
    all.push_back({"outputs", {rank_, sizes().outputs, 2}, initialisation});
    return all;
  }

  double operations() const override {
    const auto points = static_cast<double>(sizes().batch * sizes().modes());
    if (!factorized()) {
      return 8.0 * static_cast<double>(sizes().modes() * sizes().inputs * sizes().outputs) *
             static_cast<double>(sizes().batch + rank_);
    }
    return 8.0 * points * static_cast<double>(rank_ * (sizes().inputs + sizes().outputs + 1));
  }

 protected:
  Tensors steps_of(const Tensors& factors) const override {
    Tensors steps;
    at::Tensor made = factors[0].reshape({1, rank_});
    for (std::size_t axis = 0; axis < axes(); ++axis) {
      made = (made.unsqueeze(1) * factors[1 + axis].unsqueeze(0)).reshape({-1, rank_});
      steps.push_back(made);
    }
    if (factorized()) return steps;
    steps.push_back(made.unsqueeze(1) * factors[1 + axes()].unsqueeze(0));
    steps.push_back(at::matmul(steps.back(), factors[2 + axes()]));
    return steps;
  }

  void steps_backward(const Tensors& factors, const Tensors& steps, const at::Tensor& of_weights,
                      const Receiver& receive) const override {
    at::Tensor given = of_weights;
    // Of the products of each row of `left` with each row of `right`, [rows, columns, rank].
    const auto multiplied_back = [&](std::size_t factor, const at::Tensor& left) {
      const at::Tensor& right = factors[factor];
      receive(factor, at::sum(given * at::conj(left).unsqueeze(1), {0}));
      given = at::sum(given * at::conj(right).unsqueeze(0), {1});
    };
    if (!factorized()) {
      receive(2 + axes(), of_matrix(given, steps[axes()]));
      given = of_left(given, factors[2 + axes()]);
      multiplied_back(1 + axes(), steps[axes() - 1]);
    }
    for (std::size_t axis = axes(); axis-- > 0;) {
      given = given.reshape({-1, sizes().kept[axis], rank_});
      multiplied_back(1 + axis, axis == 0 ? factors[0].reshape({1, rank_}) : steps[axis - 1]);
    }
    receive(0, given);
  }

  at::Tensor apply(const at::Tensor& x, const at::Tensor& weights) const override {
    const at::Tensor parts = at::view_as_real(weights);  // [modes, rank, 2]
    const at::Tensor real = parts.select(-1, 0);
    const at::Tensor imaginary = parts.select(-1, 1);
    at::Tensor y = at::empty_like(x);
    at::Tensor y_real = y.select(1, 0);
    at::Tensor y_imaginary = y.select(1, 1);
    at::mul_out(y_real, x.select(1, 0), real);
    y_real.addcmul_(x.select(1, 1), imaginary, -1);
    at::mul_out(y_imaginary, x.select(1, 0), imaginary);
    y_imaginary.addcmul_(x.select(1, 1), real);
    return y;
  }

  at::Tensor apply_backward(const at::Tensor& x, const at::Tensor& gradient,
                            const at::Tensor& weights, at::Tensor& of_weights) const override {
    const at::Tensor given_real = gradient.select(1, 0);
    const at::Tensor given_imaginary = gradient.select(1, 1);
    const at::Tensor parts = at::view_as_real(of_weights);
    parts.select(-1, 0).copy_(
        at::sum(x.select(1, 0) * given_real + x.select(1, 1) * given_imaginary, {0}));
    parts.select(-1, 1).copy_(
        at::sum(x.select(1, 0) * given_imaginary - x.select(1, 1) * given_real, {0}));
    return apply(gradient, at::conj(weights).resolve_conj());
  }

  std::int64_t input_rank() const override { return rank_; }
  std::int64_t output_rank() const override { return rank_; }
  std::int64_t made_numbers() const override {
    std::int64_t all = 0;
    std::int64_t size = rank_;
    for (const std::int64_t kept : sizes().kept) all += size *= kept;
    if (factorized()) return all;
    return all + sizes().modes() * sizes().inputs * (rank_ + sizes().outputs);
  }

 private:
  std::int64_t rank_;
  double deviation_ = 0;
};

}  // namespace

std::unique_ptr<SpectralContraction> make_tucker_contraction(const ContractionSizes& sizes,
                                                             double rank, double deviation,
                                                             bool factorized) {
  return std::make_unique<TuckerContraction>(sizes, rank, deviation, factorized);
}
std::unique_ptr<SpectralContraction> make_cp_contraction(const ContractionSizes& sizes, double rank,
                                                         double deviation, bool factorized) {
  return std::make_unique<CpContraction>(sizes, rank, deviation, factorized);
}

}  // namespace garonne::nn
