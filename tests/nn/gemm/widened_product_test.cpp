// Products of bfloat16 that are multiplied in blocks of float32, against those of whole matrices in
// float64, and what they take against what is declared.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "exec/device_tier.hpp"
#include "nn/compute_session.hpp"
#include "nn/gemm/widened_product.hpp"

namespace garonne::nn {
namespace {

// Elements of a normal distribution, stored by columns where `transposed`.
at::Tensor random_matrix(std::int64_t rows, std::int64_t columns, bool transposed,
                         std::mt19937& random) {
  std::normal_distribution<float> normal;
  at::Tensor matrix = at::empty({rows, columns}, at::kFloat);
  float* const elements = matrix.data_ptr<float>();
  for (std::int64_t i = 0; i < matrix.numel(); ++i) elements[i] = normal(random);
  matrix = matrix.to(at::kBFloat16);
  return transposed ? matrix.t().contiguous().t() : matrix;
}

TEST(WidenedProduct, IsTheProductAndTakesWhatIsDeclared) {
  garonne::test::use_threads(1);
  std::mt19937 random(11);
  const auto size = [&](std::uint32_t most) {
    return 1 + static_cast<std::int64_t>(random() % most);
  };
  Declaration declaration;
  declaration.precision = Precision::BFloat16;
  declaration.threads = 1;
  for (int number = 0; number < 60; ++number) {
    const std::int64_t m = size(number % 2 == 0 ? 40 : 700);
    const std::int64_t n = size(number % 3 == 0 ? 40 : 600);
    const std::int64_t k = size(number % 5 == 0 ? 40 : 1300);
    const bool float32_result = random() % 2 == 0;
    const bool accumulate = float32_result && random() % 2 == 0;
    const double scale = random() % 2 == 0 ? 1 : 0.375;
    SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k));
    const at::Tensor left = random_matrix(m, k, random() % 2 == 0, random);
    const at::Tensor right = random_matrix(k, n, random() % 2 == 0, random);
    at::Tensor result = random_matrix(m, n, false, random);
    if (float32_result) result = result.to(at::kFloat);
    at::Tensor wanted = at::mm(left.to(at::kDouble), right.to(at::kDouble)) * scale;
    if (accumulate) wanted += result.to(at::kDouble);

    exec::DeviceTier tier(std::int64_t{1} << 40);
    {
      const exec::DeviceScope scope(tier);
      widened_product(left, right, result, accumulate, scale);
    }
    EXPECT_EQ(tier.peak_bytes(), widened_product_bytes(declaration, m, n, k, float32_result));

    // Sums of k products of about 1, rounded in float32 as they are added, then to the result.
    const at::Tensor error = (result.to(at::kDouble) - wanted).abs();
    const double of_sums = 1e-6 * static_cast<double>(k);
    const double of_result = float32_result ? 1e-7 : 1.0 / 256;
    EXPECT_LE((error - of_result * wanted.abs()).max().item<double>(), of_sums);
  }
  garonne::test::use_threads(2);
}

}  // namespace
}  // namespace garonne::nn
