#include "nn/sphere_layers.hpp"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <numbers>

#include "nn/element_type.hpp"

namespace garonne::nn {

struct SphereBasis::Table {
  struct Free {
    void operator()(void* bytes) const { ::operator delete (bytes, std::align_val_t{64}); }
  };
  std::once_flag made;
  std::unique_ptr<void, Free> bytes;
};

SphereBasis::SphereBasis(SphereGridKind kind, std::int64_t latitudes, std::int64_t longitudes,
                         std::int64_t degrees, std::int64_t orders)
    : grid_(make_sphere_grid(kind, latitudes, longitudes)),
      shape_{latitudes, longitudes, degrees, orders},
      tables_{std::make_shared<Table>(), std::make_shared<Table>()} {}

std::string SphereBasis::text() const {
  return fmt::format("{} {}x{} degrees {} orders {}", sphere_grid_name(grid_.kind),
                     shape_.latitudes, shape_.longitudes, shape_.degrees, shape_.orders);
}

const void* SphereBasis::table(kernels::ElementType type) const {
  Table& table = *tables_[type == kernels::ElementType::Float64 ? 1 : 0];
  std::call_once(table.made, [&] {
    const auto bytes = static_cast<std::size_t>(kernels::sphere_table_elements(shape_) *
                                                kernels::element_bytes(type));
    table.bytes.reset(::operator new (bytes, std::align_val_t{64}));
    kernels::fill_sphere_table(type, shape_, kernels::LegendreFunction::Value, grid_.cosines,
                               table.bytes.get());
  });
  return table.bytes.get();
}

namespace {

// Grid to coefficients and back, and their adjoints: which sums are run, and with which factors.
class SphereTransformNode : public Node {
 public:
  SphereTransformNode(std::shared_ptr<const SphereBasis> basis, std::int64_t batch,
                      std::int64_t channels)
      : basis_(std::move(basis)), batch_(batch), channels_(channels) {}

 protected:
  std::int64_t grid_elements() const { return batch_ * basis_->shape().points() * channels_; }
  std::int64_t coefficient_elements() const {
    return 2 * basis_->shape().rows() * batch_ * channels_;
  }

  plan::NodeSpec declare_transform(const Declaration& declaration, const std::string& kind,
                                   bool analyses_forward) const {
    plan::NodeSpec spec;
    spec.kind = kind;
    spec.cost_key = fmt::format("{} {} {}x{}", kind, basis_->text(), batch_, channels_);
    spec.gradient_aliases = {false};
    const std::int64_t workspace = declaration.allocation(kernels::sphere_workspace_bytes(
        transform_type(declaration.precision), basis_->shape(), declaration.threads));
    std::int64_t analysis = workspace;
    std::int64_t synthesis = workspace;
    if (declaration.precision == Precision::BFloat16) {
      // The transform is in float32: fields are converted beside it, made ones after the workspace
      // is gone.
      const std::int64_t converted = declaration.allocation(4 * grid_elements());
      const std::int64_t field = declaration.tensor(grid_elements());
      analysis += converted;
      synthesis = converted + std::max(workspace, field) - field;
    }
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        analyses_forward ? analysis : synthesis;
    spec.backward.transient_bytes = analyses_forward ? synthesis : analysis;
    const kernels::SphereShape& shape = basis_->shape();
    const double columns = 2.0 * static_cast<double>(batch_ * channels_);
    const double legendre = 2 * columns * static_cast<double>(shape.rows() * shape.northern_rows());
    const double fourier = 2.5 * columns / 2 * static_cast<double>(shape.points()) *
                           std::log2(static_cast<double>(shape.longitudes) + 1);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        spec.backward.floating_point_operations = legendre + fourier;
    return spec;
  }

  kernels::SphereFactors forward_factors() const {
    const double step = 2 * std::numbers::pi / static_cast<double>(basis_->shape().longitudes);
    return {basis_->grid().weights.data(), step, step};
  }

  at::Tensor analyse(Precision precision, const at::Tensor& field,
                     const kernels::SphereFactors& factors) const {
    const at::Tensor real = field.to(state_scalar_type(precision));
    at::Tensor coefficients =
        at::empty({basis_->shape().rows(), batch_, channels_, 2}, real.options());
    run(precision, kernels::sphere_analysis, real.data_ptr(), coefficients.data_ptr(), factors);
    return coefficients;
  }

  at::Tensor synthesise(Precision precision, const at::Tensor& coefficients,
                        const kernels::SphereFactors& factors) const {
    const at::Tensor field =
        at::empty({batch_ * basis_->shape().points(), channels_}, coefficients.options());
    run(precision, kernels::sphere_synthesis, field.data_ptr(), coefficients.data_ptr(), factors);
    return field.to(compute_scalar_type(precision));
  }

 private:
  static kernels::ElementType transform_type(Precision precision) {
    return kernels::accumulation_type(element_type_of(precision));
  }

  void run(Precision precision, void (*transform)(const kernels::SphereArguments&), void* field,
           void* coefficients, const kernels::SphereFactors& factors) const {
    kernels::SphereArguments arguments;
    arguments.type = transform_type(precision);
    arguments.shape = basis_->shape();
    arguments.table = basis_->table(arguments.type);
    arguments.factors = factors;
    arguments.grid = field;
    arguments.coefficients = coefficients;
    arguments.batch = batch_;
    arguments.channels = channels_;
    arguments.threads = at::get_num_threads();
    const at::Tensor workspace = at::empty(
        {kernels::sphere_workspace_bytes(arguments.type, arguments.shape, arguments.threads)},
        at::TensorOptions().dtype(at::kByte));
    arguments.workspace = workspace.data_ptr();
    transform(arguments);
  }

  std::shared_ptr<const SphereBasis> basis_;
  std::int64_t batch_;
  std::int64_t channels_;
};

class SphereAnalysis : public SphereTransformNode {
 public:
  using SphereTransformNode::SphereTransformNode;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    return declare_transform(declaration, "sphere_analysis", /*analyses_forward=*/true);
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return analyse(context.precision, inputs[0], forward_factors());
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    kernels::SphereFactors adjoint = forward_factors();
    adjoint.paired /= 2;
    return {synthesise(context.precision, arguments.output_gradient, adjoint)};
  }
};

class SphereSynthesis : public SphereTransformNode {
 public:
  using SphereTransformNode::SphereTransformNode;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    return declare_transform(declaration, "sphere_synthesis", /*analyses_forward=*/false);
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return synthesise(context.precision, inputs[0], {});
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    return {analyse(context.precision, arguments.output_gradient,
                    {nullptr, /*single=*/1, /*paired=*/2})};
  }
};

class SphereContraction : public Node {
 public:
  SphereContraction(const kernels::SphereShape& shape, SphereWeights weights, std::int64_t batch,
                    std::int64_t inputs, std::int64_t outputs)
      : shape_(shape), weights_(weights), batch_(batch), inputs_(inputs), outputs_(outputs) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "sphere_contraction";
    spec.cost_key = fmt::format(
        "sphere_contraction degrees {} orders {} by {} {}x{}x{}", shape_.degrees, shape_.orders,
        weights_ == SphereWeights::ByDegree ? "degree" : "order", batch_, inputs_, outputs_);
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    spec.splits_backward = true;
    // The weights of one group, or their gradient.
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        spec.backward.transient_bytes = spec.backward_weight.transient_bytes =
            declaration.allocation(2 * inputs_ * outputs_ * state_bytes(declaration.precision));
    const double operations = 8.0 * static_cast<double>(shape_.rows() * batch_) *
                              static_cast<double>(inputs_) * static_cast<double>(outputs_);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        spec.backward.floating_point_operations = spec.backward_weight.floating_point_operations =
            operations;
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    const at::Tensor x = complex_rows(inputs[0], inputs_);
    at::Tensor out = at::empty({shape_.rows(), batch_, outputs_, 2}, inputs[0].options());
    const at::Tensor y = complex_rows(out, outputs_);
    for_each_group([&](std::int64_t group, std::int64_t first, std::int64_t rows) {
      at::Tensor target = y.narrow(0, first, rows);
      at::mm_out(target, x.narrow(0, first, rows), weight(context, parameters[0], group));
    });
    return out;
  }

  // dx = dy · conj(w)ᵀ, dw = conj(x)ᵀ · dy, with a gradient's imaginary part that of the number.
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor dy = complex_rows(arguments.output_gradient, outputs_);
    if (arguments.weights) {
      const at::Tensor x = complex_rows(arguments.inputs[0], inputs_);
      const ParameterGradient& gradient = arguments.parameter_gradients[0];
      const at::Tensor all = gradient.target.view({groups(), inputs_, outputs_, 2});
      const at::Tensor sum = at::empty({inputs_, outputs_, 2}, arguments.output_gradient.options());
      at::Tensor product = at::view_as_complex(sum);
      for_each_group([&](std::int64_t group, std::int64_t first, std::int64_t rows) {
        at::mm_out(product, x.narrow(0, first, rows).t().conj(), dy.narrow(0, first, rows));
        at::Tensor target = all.select(0, group);
        if (gradient.accumulate) {
          target.add_(sum);
        } else {
          target.copy_(sum);
        }
      });
    }
    if (!arguments.wanted[0]) return {at::Tensor()};
    at::Tensor out =
        at::empty({shape_.rows(), batch_, inputs_, 2}, arguments.output_gradient.options());
    const at::Tensor dx = complex_rows(out, inputs_);
    for_each_group([&](std::int64_t group, std::int64_t first, std::int64_t rows) {
      at::Tensor target = dx.narrow(0, first, rows);
      at::mm_out(target, dy.narrow(0, first, rows),
                 weight(context, arguments.parameters[0], group).t().conj());
    });
    return {out};
  }

 private:
  std::int64_t groups() const {
    return weights_ == SphereWeights::ByDegree ? shape_.degrees : shape_.rows();
  }

  // Coefficients that share weights: work(group, first row, rows), rows of all samples.
  template <typename Work>
  void for_each_group(const Work& work) const {
    for (std::int64_t group = 0; group < groups(); ++group) {
      const bool by_degree = weights_ == SphereWeights::ByDegree;
      const std::int64_t first = by_degree ? shape_.first_row(group) : group;
      const std::int64_t end = by_degree ? shape_.first_row(group + 1) : group + 1;
      work(group, first * batch_, (end - first) * batch_);
    }
  }

  at::Tensor complex_rows(const at::Tensor& values, std::int64_t channels) const {
    return at::view_as_complex(values.view({shape_.rows() * batch_, channels, 2}));
  }

  // A copy: parameters and gradients may be at odd places of a bucket, and are no complex numbers
  // there.
  at::Tensor weight(const Context& context, const at::Tensor& weights, std::int64_t group) const {
    const at::Tensor own = weights.view({groups(), inputs_, outputs_, 2}).select(0, group);
    const at::Tensor copy =
        at::empty(own.sizes(), own.options().dtype(state_scalar_type(context.precision)));
    copy.copy_(own);
    return at::view_as_complex(copy);
  }

  kernels::SphereShape shape_;
  SphereWeights weights_;
  std::int64_t batch_;
  std::int64_t inputs_;
  std::int64_t outputs_;
};

}  // namespace

std::unique_ptr<Node> make_sphere_analysis(std::shared_ptr<const SphereBasis> basis,
                                           std::int64_t batch, std::int64_t channels) {
  return std::make_unique<SphereAnalysis>(std::move(basis), batch, channels);
}
std::unique_ptr<Node> make_sphere_synthesis(std::shared_ptr<const SphereBasis> basis,
                                            std::int64_t batch, std::int64_t channels) {
  return std::make_unique<SphereSynthesis>(std::move(basis), batch, channels);
}
std::unique_ptr<Node> make_sphere_contraction(const kernels::SphereShape& shape,
                                              SphereWeights weights, std::int64_t batch,
                                              std::int64_t inputs, std::int64_t outputs) {
  return std::make_unique<SphereContraction>(shape, weights, batch, inputs, outputs);
}

}  // namespace garonne::nn
