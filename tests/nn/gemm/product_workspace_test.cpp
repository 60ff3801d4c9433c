// What oneDNN takes for float32 products beside operands and result, against the declared bound.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <random>

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

// Measured on one thread of a processor with tiles, LibTorch 2.11: bytes of one bfloat16 product
// [m, k] · [k, n] beside operands and result.
TEST(ProductWorkspace, OfBFloat16InTilesIsWithinWhatIsDeclared) {
  struct Measured {
    std::int64_t m, n, k;
    bool transposed_left;
    std::int64_t bytes;
  };
  constexpr Measured measured[] = {
      {72, 24, 128, true, 54400}, {96, 24, 128, true, 54400}, {96, 32, 1024, true, 406656},
      {200, 8, 64, true, 46272},  {31, 63, 21, false, 19392}, {31, 21, 21, false, 14080},
      {31, 21, 63, false, 14336}, {31, 84, 21, false, 19392}, {31, 21, 84, false, 18432},
      {31, 53, 21, false, 19328},
  };
  Declaration declaration;
  declaration.precision = Precision::BFloat16;
  declaration.threads = 1;
  for (const auto& [m, n, k, transposed_left, bytes] : measured) {
    SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k));
    const std::int64_t declared =
        low_precision_workspace_bytes(declaration, m, n, k, transposed_left, /*in_tiles=*/true);
    EXPECT_LE(bytes, declared);
    // Parts were aligned where this was measured; elsewhere each of five may take 128 more.
    EXPECT_LE(declared, bytes + 64 + 5 * 128 + (k % 32 == 0 ? 0 : 2048));
  }
}

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
