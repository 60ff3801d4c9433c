#include "nn/spectral/sphere_layers.hpp"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <numbers>

#include "nn/element_type.hpp"
#include "nn/node_operations.hpp"
#include "nn/spectral/sphere_products.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::nn {

struct SphereBasis::Table {
  struct Free {
    void operator()(void* bytes) const { ::operator delete (bytes, std::align_val_t{64}); }
  };

  // fill(memory) makes what is there.
  template <typename Fill>
  const void* get(std::int64_t size, const Fill& fill) {
    std::call_once(made, [&] {
      bytes.reset(::operator new (static_cast<std::size_t>(size), std::align_val_t{64}));
      fill(static_cast<std::byte*>(bytes.get()));
    });
    return bytes.get();
  }

  std::once_flag made;
  std::unique_ptr<void, Free> bytes;
};

SphereBasis::SphereBasis(SphereGridKind kind, std::int64_t latitudes, std::int64_t longitudes,
                         std::int64_t degrees, std::int64_t orders, const FieldRows& rows)
    : grid_(make_sphere_grid(kind, latitudes, longitudes)),
      shape_{latitudes, longitudes, degrees, orders},
      rows_(rows),
      tables_{std::make_shared<Table>(), std::make_shared<Table>()},
      product_tables_{std::make_shared<Table>(), std::make_shared<Table>()} {
  if (!rows.cut()) return;
  // A slot without a row lies on the equator and weighs nothing.
  const auto take = [&](std::vector<double>& values, double missing) {
    std::vector<double> taken;
    for (const std::int64_t row : rows.slots)
      taken.push_back(row == FieldRows::none ? missing : values[static_cast<std::size_t>(row)]);
    values = std::move(taken);
  };
  take(grid_.colatitudes, std::numbers::pi / 2);
  take(grid_.cosines, 0);
  take(grid_.sines, 1);
  take(grid_.weights, 0);
  grid_.latitudes = shape_.latitudes = static_cast<std::int64_t>(rows.slots.size());
}

std::string SphereBasis::text() const {
  return fmt::format("{} {}{}x{} degrees {} orders {}", sphere_grid_name(grid_.kind),
                     shape_.latitudes, rows_.cut() ? fmt::format(" of {}", rows_.whole) : "",
                     shape_.longitudes, shape_.degrees, shape_.orders);
}

namespace {

std::size_t number_of(kernels::ElementType type) {
  return type == kernels::ElementType::Float64 ? 1 : 0;
}

}  // namespace

const void* SphereBasis::table(kernels::ElementType type) const {
  return tables_[number_of(type)]->get(table_bytes(type), [&](std::byte* bytes) {
    kernels::fill_sphere_table(type, shape_, grid_.cosines, bytes);
  });
}

const void* SphereBasis::product_table(kernels::ElementType type) const {
  return product_tables_[number_of(type)]->get(product_table_bytes(type), [&](std::byte* bytes) {
    const kernels::SphereProductSizes sizes(shape_);
    kernels::fill_sphere_product_tables(type, shape_, grid_.cosines, bytes,
                                        bytes + sizes.functions() * kernels::element_bytes(type));
  });
}

std::int64_t SphereBasis::product_table_bytes(kernels::ElementType type) const {
  const kernels::SphereProductSizes sizes(shape_);
  return (sizes.functions() + sizes.waves()) * kernels::element_bytes(type);
}

std::int64_t SphereBasis::table_bytes(kernels::ElementType type) const {
  return kernels::sphere_table_elements(shape_) * kernels::element_bytes(type);
}

std::string SphereBasis::table_name(kernels::ElementType type) const {
  const bool wide = type == kernels::ElementType::Float64;
  return fmt::format("harmonics {}{} {}", text(), multiplies_on_gpus() ? " as matrices" : "",
                     wide ? "float64" : "float32");
}

std::string SphereBasis::weights_name() const {
  return fmt::format("harmonics {} weights", text());
}

std::vector<ConstantTable> SphereBasis::tables(kernels::ElementType type) const {
  const ConstantTable own = multiplies_on_gpus()
                                ? ConstantTable{table_name(type), product_table_bytes(type),
                                                [this, type] { return product_table(type); }}
                                : ConstantTable{table_name(type), table_bytes(type),
                                                [this, type] { return table(type); }};
  return {own, {weights_name(), weight_bytes(), [this] { return grid_.weights.data(); }}};
}

namespace {

// Grid to coefficients and back, and their adjoints: which sums are run, and with which factors.
class SphereTransformNode : public Node {
 public:
  SphereTransformNode(std::shared_ptr<const SphereBasis> basis, std::int64_t batch,
                      std::int64_t channels)
      : basis_(std::move(basis)),
        batch_(batch),
        channels_(channels),
        products_(basis_->shape(), batch, channels) {}

  std::vector<ConstantTable> tables(Precision precision) const override {
    return basis_->tables(transform_type(precision));
  }

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
    if (declaration.device.is_gpu() && basis_->multiplies_on_gpus()) {
      spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
          spec.backward.transient_bytes = products_.transient_bytes(declaration);
      spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
          spec.backward.floating_point_operations = products_.operations();
      const int count = products_.kernel_count(declaration);
      set_kernels(spec, count, count);
      return spec;
    }
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
    // A GPU's kernel for an odd number of longitudes adds up each order over all longitudes, of a
    // row and its mirror at once.
    const double fourier =
        declaration.device.is_gpu()
            ? 4 * columns *
                  static_cast<double>(shape.northern_rows() * shape.orders * shape.longitudes)
            : 2.5 * columns / 2 * static_cast<double>(shape.points()) *
                  std::log2(static_cast<double>(shape.longitudes) + 1);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        spec.backward.floating_point_operations = legendre + fourier;
    // Along circles, and across them.
    set_kernels(spec, 2, 2);
    return spec;
  }

  kernels::SphereFactors forward_factors() const {
    const double step = 2 * std::numbers::pi / static_cast<double>(basis_->shape().longitudes);
    return {basis_->grid().weights.data(), step, step};
  }

  at::Tensor analyse(const Context& context, const at::Tensor& field,
                     const kernels::SphereFactors& factors) const {
    const at::Tensor coefficients =
        at::empty({basis_->shape().rows(), batch_, channels_, 2},
                  field.options().dtype(state_scalar_type(context.precision)));
    if (multiplies(context)) {
      products_.analyse(context.queue, product_table(context), factors_there(context, factors),
                        field, coefficients);
      return coefficients;
    }
    const at::Tensor real = field.to(state_scalar_type(context.precision));
    run(context, kernels::sphere_analysis, real, coefficients, factors);
    return coefficients;
  }

  at::Tensor synthesise(const Context& context, const at::Tensor& coefficients,
                        const kernels::SphereFactors& factors) const {
    const std::vector<std::int64_t> sizes = {batch_ * basis_->shape().points(), channels_};
    if (multiplies(context)) {
      const at::Tensor made =
          at::empty(sizes, coefficients.options().dtype(compute_scalar_type(context.precision)));
      products_.synthesise(context.queue, product_table(context), factors_there(context, factors),
                           coefficients, made);
      return made;
    }
    const at::Tensor field = at::empty(sizes, coefficients.options());
    run(context, kernels::sphere_synthesis, field, coefficients, factors);
    return field.to(compute_scalar_type(context.precision));
  }

 private:
  static kernels::ElementType transform_type(Precision precision) {
    return kernels::accumulation_type(element_type_of(precision));
  }

  bool multiplies(const Context& context) const {
    return context.queue.device == DeviceKind::Cuda && basis_->multiplies_on_gpus();
  }

  at::Tensor product_table(const Context& context) const {
    const kernels::ElementType type = transform_type(context.precision);
    const at::Tensor bytes =
        context.table(basis_->table_name(type), basis_->product_table_bytes(type));
    expect(bytes.defined(), "harmonics that are not on their device");
    return bytes.view(state_scalar_type(context.precision));
  }

  // With the weights of rows where kernels read them.
  kernels::SphereFactors factors_there(const Context& context,
                                       const kernels::SphereFactors& factors) const {
    const at::Tensor rows = context.table(basis_->weights_name(), basis_->weight_bytes());
    if (!rows.defined() || factors.rows == nullptr) return factors;
    return kernels::SphereFactors{.rows = rows.view(at::kDouble).const_data_ptr<double>(),
                                  .single = factors.single,
                                  .paired = factors.paired};
  }

  void run(const Context& context, void (*transform)(const Queue&, const kernels::SphereArguments&),
           const at::Tensor& field, const at::Tensor& coefficients,
           const kernels::SphereFactors& factors) const {
    const kernels::ElementType type = transform_type(context.precision);
    // A GPU has no use for the parts of threads.
    const int threads = context.queue.device == DeviceKind::Cuda ? 1 : at::get_num_threads();
    // Where GPUs multiply their copy is another table, and this is a processor.
    const at::Tensor table =
        basis_->multiplies_on_gpus()
            ? at::Tensor()
            : context.table(basis_->table_name(type), basis_->table_bytes(type));
    const at::Tensor workspace =
        at::empty({kernels::sphere_workspace_bytes(type, basis_->shape(), threads)},
                  tensor_options(context.queue, at::kByte));
    transform(context.queue,
              kernels::SphereArguments{
                  .type = type,
                  .shape = basis_->shape(),
                  .table = table.defined() ? table.const_data_ptr() : basis_->table(type),
                  .factors = factors_there(context, factors),
                  .grid = field.data_ptr(),
                  .coefficients = coefficients.data_ptr(),
                  .batch = batch_,
                  .channels = channels_,
                  .workspace = workspace.data_ptr(),
                  .threads = threads});
  }

  std::shared_ptr<const SphereBasis> basis_;
  std::int64_t batch_;
  std::int64_t channels_;
  SphereProducts products_;
};

class SphereAnalysis : public SphereTransformNode {
 public:
  using SphereTransformNode::SphereTransformNode;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    return declare_transform(declaration, "sphere_analysis", /*analyses_forward=*/true);
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return analyse(context, inputs[0], forward_factors());
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    kernels::SphereFactors adjoint = forward_factors();
    adjoint.paired /= 2;
    return {synthesise(context, arguments.output_gradient, adjoint)};
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
    return synthesise(context, inputs[0], {});
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    return {analyse(context, arguments.output_gradient, {nullptr, /*single=*/1, /*paired=*/2})};
  }
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

}  // namespace garonne::nn
