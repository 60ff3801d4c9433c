// Spherical harmonic transforms as products of matrices, against the sums of processors.
#include "nn/spectral/sphere_products.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "nn/element_type.hpp"
#include "nn/fields/field_rows.hpp"
#include "nn/precisions.hpp"
#include "nn/spectral/sphere_layers.hpp"

namespace garonne::nn {
namespace {

struct Sphere {
  SphereGridKind grid;
  std::int64_t latitudes;
  std::int64_t longitudes;
  std::int64_t degrees;
  std::int64_t orders;
  std::int64_t batch;
  std::int64_t channels;
};

// Even and odd rows, quarters that have a point in their middle and not, all frequencies and few,
// more degrees than orders, and columns that go through in several pieces.
const Sphere spheres[] = {
    {SphereGridKind::LegendreGauss, 4, 8, 3, 2, 1, 1},
    {SphereGridKind::LegendreGauss, 5, 10, 5, 5, 2, 3},
    {SphereGridKind::Equiangular, 13, 24, 12, 12, 1, 5},
    {SphereGridKind::Equiangular, 9, 18, 9, 10 - 1, 3, 2},
    {SphereGridKind::LegendreGauss, 16, 32, 21, 17, 2, 8},
    {SphereGridKind::LegendreGauss, 192, 768, 3, 3, 3, 31},
};

class Transforms {
 public:
  Transforms(const Sphere& sphere, Precision precision, const FieldRows& rows = {})
      : sphere_(sphere),
        precision_(precision),
        basis_(std::make_shared<const SphereBasis>(sphere.grid, sphere.latitudes, sphere.longitudes,
                                                   sphere.degrees, sphere.orders, rows)),
        products_(basis_->shape(), sphere.batch, sphere.channels) {
    context_.precision = precision;
  }

  const SphereBasis& basis() const { return *basis_; }

  at::Tensor field() const {
    return at::randn({sphere_.batch * basis_->shape().points(), sphere_.channels}, at::kDouble)
        .to(compute_scalar_type(precision_));
  }
  at::Tensor coefficients() const {
    return at::randn({basis_->shape().rows(), sphere_.batch, sphere_.channels, 2}, at::kDouble)
        .to(state_scalar_type(precision_));
  }

  at::Tensor analysed(const at::Tensor& field, const kernels::SphereFactors& factors) const {
    at::Tensor made = at::full_like(coefficients(), 7);
    products_.analyse(context_.queue, table(), factors, field, made);
    return made;
  }
  at::Tensor synthesised(const at::Tensor& numbers, const kernels::SphereFactors& factors) const {
    at::Tensor made = at::full_like(field(), 7);
    products_.synthesise(context_.queue, table(), factors, numbers, made);
    return made;
  }

  kernels::SphereFactors factors_of_analysis() const {
    const double step = 2 * std::numbers::pi / static_cast<double>(sphere_.longitudes);
    return {basis_->grid().weights.data(), step, step};
  }

  // Of the node, on the processor.
  std::vector<at::Tensor> forward_and_backward(bool analysis, const at::Tensor& input,
                                               const at::Tensor& gradient) const {
    const auto node = analysis ? make_sphere_analysis(basis_, sphere_.batch, sphere_.channels)
                               : make_sphere_synthesis(basis_, sphere_.batch, sphere_.channels);
    BackwardArguments arguments;
    arguments.inputs = {input};
    arguments.output_gradient = gradient;
    arguments.wanted = {true};
    arguments.add_to = {at::Tensor()};
    arguments.overwrite = {false};
    return {node->forward(context_, {input}, {}, nullptr),
            node->backward(context_, arguments).at(0)};
  }

 private:
  at::Tensor table() const {
    const auto type = kernels::accumulation_type(element_type_of(precision_));
    return at::from_blob(const_cast<void*>(basis_->product_table(type)),
                         {basis_->product_table_bytes(type) / kernels::element_bytes(type)},
                         at::TensorOptions(state_scalar_type(precision_)));
  }

  Sphere sphere_;
  Precision precision_;
  std::shared_ptr<const SphereBasis> basis_;
  SphereProducts products_;
  Context context_;
};

void expect_close(const at::Tensor& made, const at::Tensor& wanted, const std::string& what) {
  ASSERT_EQ(made.scalar_type(), wanted.scalar_type()) << what;
  const double unit = made.scalar_type() == at::kDouble  ? 1e-14
                      : made.scalar_type() == at::kFloat ? 5e-6
                                                         : 8e-3;
  const at::Tensor apart = (made.to(at::kDouble) - wanted.to(at::kDouble)).abs().max();
  EXPECT_LE(apart.item<double>(), 8 * unit * wanted.to(at::kDouble).abs().max().item<double>())
      << what;
}

void expect_transforms_of_processors(const Sphere& sphere, Precision precision,
                                     const FieldRows& rows) {
  const at::NoGradGuard no_gradients;
  at::manual_seed(11);
  const Transforms transforms(sphere, precision, rows);
  const std::string what =
      transforms.basis().text() + " precision " + std::to_string(static_cast<int>(precision));
  const at::Tensor field = transforms.field();
  const at::Tensor numbers = transforms.coefficients();
  kernels::SphereFactors adjoint = transforms.factors_of_analysis();
  adjoint.paired /= 2;
  const auto analysis = transforms.forward_and_backward(true, field, numbers);
  expect_close(transforms.analysed(field, transforms.factors_of_analysis()), analysis.at(0),
               "analysis " + what);
  expect_close(transforms.synthesised(numbers, adjoint), analysis.at(1),
               "gradient of analysis " + what);
  const auto synthesis = transforms.forward_and_backward(false, numbers, field);
  expect_close(transforms.synthesised(numbers, {}), synthesis.at(0), "synthesis " + what);
  expect_close(transforms.analysed(field, {nullptr, 1, 2}), synthesis.at(1),
               "gradient of synthesis " + what);
}

TEST(SphereProducts, AreTheTransformsOfProcessors) {
  for (const Precision precision : precisions) {
    for (const Sphere& sphere : spheres) expect_transforms_of_processors(sphere, precision, {});
  }
}

// A member of a tensor group has some rows, in slots of which not all have one.
TEST(SphereProducts, AreThoseOfRowsThatAreCut) {
  for (const std::int64_t latitudes : {7, 8}) {
    const Sphere sphere{SphereGridKind::LegendreGauss, latitudes, 14, 7, 7, 2, 4};
    for (int member = 0; member < 3; ++member) {
      expect_transforms_of_processors(sphere, Precision::Float64,
                                      mirrored_rows(latitudes, {member, 3}));
    }
  }
}

TEST(SphereProducts, AreForEvenNumbersOfLongitudes) {
  EXPECT_TRUE(SphereBasis(SphereGridKind::LegendreGauss, 6, 14, 5, 5).multiplies_on_gpus());
  EXPECT_FALSE(SphereBasis(SphereGridKind::LegendreGauss, 6, 13, 5, 5).multiplies_on_gpus());
}

TEST(SphereProducts, TakesWhatItDeclares) {
  Declaration declaration;
  declaration.device = {DeviceKind::Cuda, 90, 132};
  declaration.granularity = declaration.device.granularity();
  // 64 rows on the one side, 65 places of a quarter, 22 orders and degrees of each kind.
  const kernels::SphereShape shape{128, 256, 43, 43};
  const SphereProducts products(shape, 4, 256);
  const std::int64_t folded = 8 * 64 * 65 * 1024;
  const std::int64_t spectrum = 8 * 64 * 22 * 1024;
  const std::int64_t series = 8 * 22 * 22 * 1024;
  EXPECT_EQ(products.transient_bytes(declaration), 4 * (folded + spectrum + series));
  EXPECT_EQ(products.kernel_count(declaration), 10);
  EXPECT_EQ(products.operations(), 2.0 * (22.0 * folded + 22.0 * spectrum));
  // 361 · 361 · 8 numbers a column: 64 columns are 255 MiB.
  const SphereProducts fine({721, 1440, 240, 240}, 1, 384);
  EXPECT_EQ(fine.kernel_count(declaration), 60);
  EXPECT_EQ(fine.transient_bytes(declaration), 4 * 64 * 8 * (361 * 361 + 361 * 120 + 120 * 120));
}

}  // namespace
}  // namespace garonne::nn
