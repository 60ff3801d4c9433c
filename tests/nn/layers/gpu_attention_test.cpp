// Attention by products, which is what GPUs do where they have no kernel: it runs on processors,
// too, beside the tensor library's attention there. Kernels of GPUs need one.
#include "nn/layers/gpu_attention.hpp"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/bytes.hpp"
#include "exec/device_tier.hpp"
#include "nn/layers/causal_attention.hpp"
#include "nn/layers/layers.hpp"
#include "nn/layers/recorded_bytes.hpp"

namespace garonne::nn {
namespace {

constexpr AttentionSizes sizes{2, 37, 3, 10};

at::Tensor random_rows(at::ScalarType type, std::int64_t parts, std::uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({sizes.batch, sizes.sequence, parts, sizes.heads, sizes.head_size},
                   at::TensorOptions().dtype(at::kDouble))
      .to(type);
}

AttentionParts parts_of(const at::Tensor& all) {
  const auto part = [&](std::int64_t which) { return all.select(2, which).transpose(1, 2); };
  return {part(0), part(1), part(2)};
}

class ByProducts : public testing::TestWithParam<Precision> {
 protected:
  at::ScalarType type() const {
    return GetParam() == Precision::Float64   ? at::kDouble
           : GetParam() == Precision::Float32 ? at::kFloat
                                              : at::kBFloat16;
  }
  // Of values around one.
  double tolerance() const {
    return GetParam() == Precision::Float64 ? 1e-12 : GetParam() == Precision::Float32 ? 1e-5 : 0.1;
  }

  const at::NoGradGuard no_gradients_;
};

TEST_P(ByProducts, GivesWhatTheProcessorsAttentionGives) {
  // Heads of ten numbers have no kernel in any type but float64, which has none at all.
  const AttentionParts parts = parts_of(random_rows(type(), 3, 1));
  const at::Tensor gradient = parts_of(random_rows(type(), 3, 2))[0];
  const auto [result, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      parts[0], parts[1], parts[2], 0.0, /*is_causal=*/true);
  const Attended made = gpu_attention(parts);
  EXPECT_TRUE(made.result.transpose(1, 2).is_contiguous());
  EXPECT_EQ(made.result.scalar_type(), type());
  const auto expect_near = [&](const at::Tensor& one, const at::Tensor& other, const char* what) {
    ASSERT_EQ(one.sizes(), other.sizes()) << what;
    EXPECT_LE(one.to(at::kDouble).sub(other.to(at::kDouble)).abs().max().item<double>(),
              tolerance())
        << what;
  };
  expect_near(made.result, result, "result");
  expect_near(made.log_sums, log_sums, "log-sums");
  const auto [of_query, of_key, of_value] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(
          gradient, parts[0], parts[1], parts[2], result, log_sums, 0.0, /*is_causal=*/true);
  const AttentionParts back = gpu_attention_backward(parts, gradient, made);
  expect_near(back[0], of_query, "gradient of the queries");
  expect_near(back[1], of_key, "gradient of the keys");
  expect_near(back[2], of_value, "gradient of the values");
}

TEST_P(ByProducts, TakesNoMoreThanItSays) {
  Declaration declaration;
  declaration.precision = GetParam();
  const GpuAttentionBytes said = gpu_attention_bytes(declaration, sizes);
  exec::DeviceTier tier(std::numeric_limits<std::int64_t>::max() / 2);
  const AttentionParts parts = parts_of(random_rows(type(), 3, 1));
  const at::Tensor gradient = parts_of(random_rows(type(), 3, 2))[0];
  const exec::DeviceScope scope(tier);
  const Attended made = gpu_attention(parts);
  const std::int64_t made_bytes = tier.live_bytes();
  const auto result_bytes = declaration.allocation(static_cast<std::int64_t>(made.result.nbytes()));
  EXPECT_EQ(made_bytes - result_bytes, said.log_sums);
  EXPECT_LE(tier.peak_bytes() - made_bytes, said.forward);
  tier.reset_peak();
  const AttentionParts back = gpu_attention_backward(parts, gradient, made);
  EXPECT_LE(tier.peak_bytes() - tier.live_bytes(), said.backward);
}

// Kept keys and values as generators have them, and all heads of queries of one position.
TEST_P(ByProducts, OnePositionSeesAllKeys) {
  Declaration declaration;
  declaration.precision = GetParam();
  declaration.device = {DeviceKind::Cuda, 90, 132};
  for (const AttentionToAllSizes& one :
       {AttentionToAllSizes{1, 1, 1, 8}, AttentionToAllSizes{1, 37, 3, 10},
        AttentionToAllSizes{4, 50, 2, 16}}) {
    at::manual_seed(3);
    const auto random = [&](at::IntArrayRef shape) {
      return at::randn(shape, at::TensorOptions().dtype(at::kDouble)).to(type());
    };
    const at::Tensor kept = random({2, one.keys + 3, one.heads, one.head_size});
    const auto until_here = [&](std::int64_t which) {
      return kept.select(0, which).narrow(0, 0, one.keys).transpose(0, 1).unsqueeze(0);
    };
    const at::Tensor asked = random({1, one.heads, one.queries + 2, one.head_size});
    const AttentionParts parts = {asked.narrow(2, 0, one.queries), until_here(0), until_here(1)};
    const at::Tensor wanted = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        parts[0], parts[1], parts[2], 0.0, /*is_causal=*/false));
    exec::DeviceTier tier(std::numeric_limits<std::int64_t>::max() / 2);
    const exec::DeviceScope scope(tier);
    const at::Tensor made = gpu_attention_to_all(parts);
    EXPECT_LE(tier.peak_bytes() - tier.live_bytes(), gpu_attention_to_all_bytes(declaration, one));
    EXPECT_EQ(attention_to_all_bytes(declaration, one),
              gpu_attention_to_all_bytes(declaration, one));
    EXPECT_EQ(made.scalar_type(), type());
    ASSERT_EQ(made.sizes(), wanted.sizes());
    EXPECT_LE(made.to(at::kDouble).sub(wanted.to(at::kDouble)).abs().max().item<double>(),
              tolerance());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ByProducts,
                         testing::Values(Precision::Float32, Precision::Float64,
                                         Precision::BFloat16));

TEST(GpuAttentionBytes, OfGpt2By8On132Multiprocessors) {
  // 4 · n · batch · sequence · heads · head size with n = 2, and the row sums: 48 MiB and 0.4.
  Declaration declaration;
  declaration.precision = Precision::BFloat16;
  declaration.granularity = cuda_allocation_granularity;
  declaration.device = {DeviceKind::Cuda, 90, 132};
  const GpuAttentionBytes said = gpu_attention_bytes(declaration, {8, 1024, 12, 64});
  const std::int64_t sums = 4 * 8 * 12 * 1024;
  EXPECT_EQ(said.log_sums, sums);
  EXPECT_EQ(said.backward, (std::int64_t{48} << 20) + sums + 3 * cuda_allocation_granularity);
  EXPECT_EQ(said.forward, 3 * cuda_allocation_granularity);
}

Declaration on_gpu(Precision precision, int multiprocessors) {
  Declaration declaration;
  declaration.precision = precision;
  declaration.device = {DeviceKind::Cuda, 80, multiprocessors};
  declaration.granularity = declaration.device.granularity();
  return declaration;
}

// One matrix of 100 rows: 128 of them for each multiprocessor, heads of 80 in slots of 96.
TEST(GpuAttentionBytes, RowsAndHeadsArePadded) {
  const GpuAttentionBytes said =
      gpu_attention_bytes(on_gpu(Precision::BFloat16, 132), {1, 100, 1, 80});
  EXPECT_EQ(said.backward, 4 * 132 * 128 * 96 + 512 + 3 * 512);
  // Large heads have one slot.
  EXPECT_EQ(gpu_attention_bytes(on_gpu(Precision::BFloat16, 132), {132, 128, 1, 200}).backward,
            4LL * 132 * 128 * 256 + 4 * 132 * 128 + 3 * 512);
}

// float32: of long rows the products of gradients and results with two sums of them are most; of
// heads in tiles of 64 columns that are not full, the tiles beside one of the sums.
TEST(GpuAttentionBytes, Float32SumsProductsAndThenTiles) {
  const GpuAttentionBytes rows =
      gpu_attention_bytes(on_gpu(Precision::Float32, 132), {2, 1024, 3, 64});
  EXPECT_EQ(rows.backward, 4 * 6 * 1024 * 64 + 2 * (4 * 6 * 1024) + 3 * 512);
  const GpuAttentionBytes tiles =
      gpu_attention_bytes(on_gpu(Precision::Float32, 132), {2, 100, 4, 160});
  // Two tiles of rows and three of columns.
  EXPECT_EQ(tiles.backward,
            round_up(4 * 8 * 100, 512) + round_up(4 * 8 * 2 * 3 * (64 * 64 + 4), 512) + 3 * 512);
}

TEST(GpuAttentionBytes, ARecordedRandomStateIsOfFloat32Alone) {
  for (const Precision precision : {Precision::BFloat16, Precision::Float32, Precision::Float64}) {
    const Declaration declaration = on_gpu(precision, 132);
    const std::int64_t bytes = precision == Precision::Float32 ? 2 * 512 : 0;
    const plan::NodeSpec attention = make_attention({2, 64}, 2, 32)->declare(declaration);
    EXPECT_EQ(recorded_bytes(declaration, attention), bytes);
    EXPECT_GE(attention.forward_keep.transient_bytes, bytes);
    EXPECT_EQ(recorded_bytes(declaration,
                             make_grouped_attention({2, 64}, 2, 2, 32)->declare(declaration)),
              bytes);
    EXPECT_EQ(recorded_bytes(declaration, make_gelu({2, 64}, 32)->declare(declaration)), 0);
  }
}

// Of one member among several, results and their gradients do not stand side by side: the kernel
// of bfloat16 copies both.
TEST(GpuAttentionBytes, StridedResultsAndGradientsAreCopied) {
  constexpr Rows rows{2, 64};
  constexpr std::int64_t groups = 2;
  constexpr std::int64_t head_size = 32;
  for (const Precision precision : {Precision::BFloat16, Precision::Float32}) {
    const Declaration declaration = on_gpu(precision, 132);
    const std::int64_t kernel =
        gpu_attention_bytes(declaration, {rows.batch, rows.sequence, groups, head_size}).backward;
    const std::int64_t part = declaration.tensor(rows.count() * groups * head_size);
    const auto declared = [&](std::int64_t members) {
      return make_grouped_attention(rows, groups, members, head_size)
          ->declare(declaration)
          .backward.transient_bytes;
    };
    EXPECT_EQ(declared(1), 3 * part + kernel);
    // In bfloat16 two sums in float32 as well.
    EXPECT_EQ(
        declared(3),
        3 * part + (precision == Precision::BFloat16 ? 2 * 2 * part + 2 * part : part) + kernel);
  }
}

// What is said of no GPU in particular holds for each.
TEST(GpuAttentionBytes, GrowWithSizesAndMultiprocessors) {
  constexpr std::array<std::int64_t GpuAttentionBytes::*, 3> parts = {
      &GpuAttentionBytes::log_sums, &GpuAttentionBytes::forward, &GpuAttentionBytes::backward};
  for (const Precision precision : {Precision::BFloat16, Precision::Float32, Precision::Float64}) {
    for (std::int64_t sequence = 1; sequence < 700; sequence += 37) {
      for (std::int64_t head_size = 8; head_size <= 256; head_size += 24) {
        const GpuAttentionBytes bytes =
            gpu_attention_bytes(on_gpu(precision, 108), {2, sequence, 4, head_size});
        const GpuAttentionBytes longer =
            gpu_attention_bytes(on_gpu(precision, 108), {2, sequence + 5, 4, head_size});
        const GpuAttentionBytes any =
            gpu_attention_bytes(on_gpu(precision, 0), {2, sequence, 4, head_size});
        for (const auto part : parts) {
          EXPECT_EQ(bytes.*part % cuda_allocation_granularity, 0);
          // Keys of long sequences are in fewer parts: only the sums of all of them grow.
          if (part != &GpuAttentionBytes::forward) {
            EXPECT_LE(bytes.*part, longer.*part);
          }
          EXPECT_LE(bytes.*part, any.*part);
        }
      }
    }
  }
}

}  // namespace
}  // namespace garonne::nn
