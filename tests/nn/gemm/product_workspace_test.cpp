// What products take beside operands and result, against what is declared.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "exec/device_tier.hpp"
#include "nn/compute_session.hpp"
#include "nn/gemm/onednn_workspace.hpp"
#include "nn/gemm/product.hpp"

namespace garonne::nn {
namespace {

std::int64_t workspace_bytes(const ProductShape& shape, bool with_bias) {
  Products products;
  products.choose(shape, *find_product_library("oneDNN"));
  exec::DeviceTier tier(std::int64_t{1} << 40);
  const exec::DeviceScope scope(tier);
  const at::Tensor x = at::zeros({shape.rows, shape.inputs});
  const at::Tensor weight = at::zeros({shape.outputs, shape.inputs});
  const at::Tensor bias = with_bias ? at::zeros({shape.outputs}) : at::Tensor();
  tier.reset_peak();
  const at::Tensor y = products.forward(Queue(), x, weight, bias);
  return tier.peak_bytes() - tier.live_bytes();
}

TEST(ProductWorkspace, OfFloat32IsWithinWhatIsDeclared) {
  for (const int threads : {1, 2}) {
    garonne::test::use_threads(threads);
    Declaration declaration;
    declaration.threads = threads;
    std::mt19937 random(3);
    const auto size = [&](std::uint32_t most_bits) {
      return 1 + static_cast<std::int64_t>(random() % (1U << (random() % most_bits)));
    };
    for (int k = 0; k < 400; ++k) {
      ProductShape shape{ProductForm::Forward, size(12), size(12), size(13), Precision::Float32};
      if (k % 3 == 0) {
        shape.rows = (shape.rows + 63) / 64 * 64;
        shape.outputs = (shape.outputs + 15) / 16 * 16;
        shape.inputs = (shape.inputs + 15) / 16 * 16;
      }
      SCOPED_TRACE(product_key(shape) + " threads " + std::to_string(threads));
      const std::int64_t bytes = workspace_bytes(shape, k % 2 == 0);
      const std::int64_t declared =
          product_transients(declaration, shape.rows, shape.outputs, shape.inputs).forward_bytes;
      EXPECT_LE(bytes, declared);
    }
  }
  garonne::test::use_threads(2);
}

// What the library of products of bfloat16 takes beside operands and result, and the product of
// a gradient of weights before it is added.
std::int64_t bfloat16_bytes(const ProductShape& shape, double scale) {
  const auto options = at::TensorOptions(at::kBFloat16);
  const Products products;
  exec::DeviceTier tier(std::int64_t{1} << 40);
  const exec::DeviceScope scope(tier);
  const at::Tensor x = at::zeros({shape.rows, shape.inputs}, options);
  const at::Tensor dy = at::zeros({shape.rows, shape.outputs}, options);
  const at::Tensor weight = at::zeros({shape.outputs, shape.inputs}, options);
  const at::Tensor target = at::zeros({shape.outputs * shape.inputs}, at::kFloat);
  at::Tensor made;
  const std::int64_t before = tier.live_bytes();
  tier.reset_peak();
  switch (shape.form) {
    case ProductForm::Forward:
      made = products.forward(Queue(), x, weight, {});
      break;
    case ProductForm::InputGradient:
      made = products.input_gradient(Queue(), dy, weight, scale);
      break;
    case ProductForm::WeightGradient:
      products.weight_gradient(Queue(), dy, x, target, /*accumulate=*/true, scale);
      break;
  }
  return tier.peak_bytes() - std::max(before, tier.live_bytes());
}

std::int64_t of_form(const ProductTransients& transients, ProductForm form) {
  switch (form) {
    case ProductForm::Forward:
      return transients.forward_bytes;
    case ProductForm::InputGradient:
      return transients.input_gradient_bytes;
    case ProductForm::WeightGradient:
      break;
  }
  return transients.weight_gradient_bytes;
}

TEST(ProductWorkspace, OfBFloat16IsWhatIsDeclared) {
  std::mt19937 random(4);
  const auto size = [&] {
    const std::uint32_t kind = random() % 3;
    if (kind == 0) return 1 + static_cast<std::int64_t>(random() % (1U << (random() % 11)));
    if (kind == 1) return 64 * (1 + static_cast<std::int64_t>(random() % 24));
    return std::int64_t{1} << (random() % 12);
  };
  // Sums for sixteen blocks of columns; a long sum, which threads may divide; a short one.
  std::vector<ProductShape> shapes = {{ProductForm::WeightGradient, 1024, 256, 1024},
                                      {ProductForm::WeightGradient, 576, 640, 2048},
                                      {ProductForm::WeightGradient, 8192, 64, 64},
                                      {ProductForm::Forward, 1024, 1024, 2048},
                                      {ProductForm::Forward, 2048, 16, 2048},
                                      {ProductForm::InputGradient, 384, 948, 1600},
                                      {ProductForm::Forward, 1, 1, 1}};
  while (shapes.size() < 150)
    shapes.push_back({static_cast<ProductForm>(random() % 3), size(), size(), size()});
  for (const int threads : {1, 2}) {
    garonne::test::use_threads(threads);
    Declaration declaration;
    declaration.precision = Precision::BFloat16;
    declaration.threads = threads;
    for (ProductShape shape : shapes) {
      shape.precision = Precision::BFloat16;
      if (shape.rows * shape.outputs * shape.inputs > std::int64_t{1} << 29) shape.inputs = 64;
      SCOPED_TRACE(product_key(shape) + " threads " + std::to_string(threads));
      // Declared by a process that computes with any number of threads.
      garonne::test::use_threads(1 + static_cast<int>(random() % 2));
      const std::int64_t declared = of_form(
          product_transients(declaration, shape.rows, shape.outputs, shape.inputs), shape.form);
      garonne::test::use_threads(threads);
      const std::int64_t bytes = bfloat16_bytes(shape, random() % 2 == 0 ? 1 : 0.25);
      EXPECT_LE(bytes, declared);
      // But for a scale, in at most two types. Products without such instructions have bounds.
      if (multiplies_bfloat16()) EXPECT_LE(declared, bytes + 2 * 64);
    }
  }
  garonne::test::use_threads(2);
}

#if defined(__x86_64__)  // elsewhere operands have addresses
// As `ulimit -v` leaves on hosts where jobs are planned.
TEST(ProductWorkspace, IsFoundWithoutRoomForTheOperands) {
  Declaration declaration;
  declaration.precision = Precision::BFloat16;
  const auto declared = [&] {
    const ProductTransients transients =
        product_transients(declaration, std::int64_t{1} << 17, std::int64_t{1} << 17, 2048);
    return std::vector{transients.forward_bytes, transients.input_gradient_bytes};
  };
  const std::vector<std::int64_t> wanted = declared();
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  ASSERT_GT(pages, 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limited = before;
  limited.rlim_cur =
      static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (1U << 28);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const std::vector<std::int64_t> found = declared();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(found, wanted);
}
#endif

TEST(ProductWorkspace, OfAGpuIsNoneBesideWhatItsLibraryKeeps) {
  for (const Precision precision : {Precision::Float32, Precision::Float64, Precision::BFloat16}) {
    Declaration declaration;
    declaration.precision = precision;
    declaration.granularity = cuda_allocation_granularity;
    declaration.device = {DeviceKind::Cuda, 90, 132};
    const ProductTransients transients = product_transients(declaration, 512, 384, 768);
    EXPECT_EQ(transients.forward_bytes, 0);
    EXPECT_EQ(transients.input_gradient_bytes, 0);
    EXPECT_EQ(transients.weight_gradient_bytes, 0);
  }
}

}  // namespace
}  // namespace garonne::nn
