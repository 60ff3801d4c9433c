// Attention in tiles, of heads that share keys and values, beside attention that has the whole
// matrix in memory; and where it is taken.
#include "nn/layers/tiled_attention.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <vector>

#include "base/philox.hpp"
#include "exec/device_tier.hpp"
#include "nn/compute_session.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"
#include "nn/layers/layers.hpp"
#include "nn/layers/whole_attention.hpp"

namespace garonne::nn {
namespace {

using namespace test;

class TiledAttentionOf : public testing::TestWithParam<Precision> {
 protected:
  at::ScalarType type() const { return compute_scalar_type(GetParam()); }
  double tolerance() const {
    return GetParam() == Precision::Float64   ? 1e-13
           : GetParam() == Precision::Float32 ? 2e-6
                                              : 4e-3;
  }
};

// By hand: a tile of 128 rows, copies of keys and values and their sums.
TEST(TiledAttentionBytes, GrowWithTheSequenceAndNotWithItsSquare) {
  Declaration declaration;
  const TiledAttentionBytes bytes = tiled_attention_bytes(declaration, {2, 4096, 12, 1, 64});
  const std::int64_t part = 4096 * 64;
  const std::int64_t scores = 128 * 4096;
  EXPECT_EQ(bytes.log_sums, 4 * 2 * 12 * 4096);
  EXPECT_EQ(bytes.forward, 4 * (2 * part + scores + 128 * 64));
  EXPECT_EQ(bytes.backward, 4 * (4 * part + 2 * scores + 2 * 128 * 64));
  const TiledAttentionBytes longer = tiled_attention_bytes(declaration, {2, 8192, 12, 1, 64});
  EXPECT_LE(longer.forward, 2 * bytes.forward);
  EXPECT_LE(longer.backward, 2 * bytes.backward);
  // Four heads of queries share keys and values, and 32 rows of each a tile.
  const TiledAttentionBytes grouped = tiled_attention_bytes(declaration, {2, 4096, 3, 4, 64});
  EXPECT_EQ(grouped.log_sums, bytes.log_sums);
  EXPECT_EQ(grouped.forward, bytes.forward);
  // Two threads have twice the scores.
  declaration.threads = 2;
  EXPECT_EQ(attention_tiles({2, 1024, 12, 1, 64}, DeviceKind::Cpu, 1).groups, 2);
  EXPECT_EQ(attention_tiles({2, 1024, 12, 1, 64}, DeviceKind::Cpu, 2).groups, 4);
  EXPECT_EQ(tiled_attention_bytes(declaration, {2, 1024, 12, 1, 64}).forward,
            4 * 4 * (2 * 1024 * 64 + 128 * 1024 + 128 * 64));
  // On a GPU all heads of some samples at once.
  declaration.device = {DeviceKind::Cuda, 90, 132};
  const AttentionTiles tiles = attention_tiles({8, 1024, 12, 1, 64}, DeviceKind::Cuda, 1);
  EXPECT_EQ(tiles.samples, 8);
  EXPECT_EQ(tiles.groups, 12);
  EXPECT_EQ(tiled_attention_bytes(declaration, {8, 1024, 12, 1, 64}).forward,
            96 * 4 * (2 * 1024 * 64 + 128 * 1024 + 128 * 64));
  EXPECT_LE(attention_tiles({8, 8192, 96, 1, 64}, DeviceKind::Cuda, 1).groups, 32);
}

struct GroupedCase {
  TiledAttentionSizes sizes;
  double probability;
};

// Members of one head, of a part of a tile, of so many that a tile has the fewest rows.
const GroupedCase grouped_cases[] = {
    {{1, 1, 1, 2, 2}, 0.5},    {{2, 7, 2, 3, 5}, 0.25}, {{2, 70, 3, 2, 4}, 0},
    {{1, 130, 3, 2, 8}, 0.15}, {{3, 40, 1, 9, 4}, 0.3}, {{1, 257, 2, 4, 7}, 0},
    {{2, 130, 2, 1, 16}, 0},   {{1, 600, 5, 2, 8}, 0},
};

std::string describe(const TiledAttentionSizes& sizes) {
  return describe(AttentionCase{sizes.batch, sizes.sequence, sizes.groups, sizes.head_size, 0, 0}) +
         " of " + std::to_string(sizes.members);
}

// Of [batch, sequence, groups, members + 2, head size] queries, keys and values of every head,
// [rows, 3 · heads · head size].
at::Tensor repeated(const TiledAttentionSizes& sizes, const at::Tensor& qkv) {
  const auto part = [&](std::int64_t first, std::int64_t count) {
    return qkv.narrow(3, first, count)
        .expand({sizes.batch, sizes.sequence, sizes.groups, sizes.members, sizes.head_size})
        .reshape({sizes.batch * sizes.sequence, sizes.heads() * sizes.head_size});
  };
  return at::cat({part(0, sizes.members), part(sizes.members, 1), part(sizes.members + 1, 1)}, 1);
}

struct TiledPasses {
  at::Tensor result;
  at::Tensor log_sums;
  at::Tensor gradient;
};

TiledPasses run_tiles(const TiledAttentionSizes& sizes, double probability,
                      const std::vector<std::int64_t>& samples, const at::Tensor& qkv,
                      const at::Tensor& given, Precision precision) {
  const at::NoGradGuard no_gradients;
  const Context context = context_of(samples, precision);
  AttentionMask mask;
  mask.samples = samples.data();
  mask.dropout.key = philox_key(attention_seed, attention_name);
  mask.dropout.step = attention_step;
  if (probability > 0) {
    mask.dropout.threshold = dropout_threshold(probability);
    mask.dropout.scale = 1 / (1 - probability);
  }
  TiledPasses passes{
      at::empty_like(given),
      at::empty({sizes.batch, sizes.heads(), sizes.sequence},
                qkv.options().dtype(precision == Precision::Float64 ? at::kDouble : at::kFloat)),
      at::empty_like(qkv)};
  tiled_attention(context, sizes, mask, qkv, passes.result, passes.log_sums);
  tiled_attention_backward(context, sizes, mask, qkv, passes.log_sums, given, passes.gradient);
  return passes;
}

TEST_P(TiledAttentionOf, MembersOfAGroupShareKeysAndValues) {
  for (const GroupedCase& item : grouped_cases) {
    const TiledAttentionSizes& sizes = item.sizes;
    SCOPED_TRACE(describe(sizes));
    const AttentionCase whole{sizes.batch, sizes.sequence,  sizes.heads(), sizes.head_size,
                              0,           item.probability};
    const std::vector<std::int64_t> samples = samples_of(whole);
    const at::Tensor qkv = random_numbers(
        {sizes.batch, sizes.sequence, sizes.groups, sizes.members + 2, sizes.head_size}, 1);
    const at::Tensor given = random_numbers(
        {sizes.batch, sizes.sequence, sizes.groups, sizes.members, sizes.head_size}, 2);
    const AttentionPasses wanted = attention_reference(
        whole, repeated(sizes, qkv), given.view({sizes.batch * sizes.sequence, -1}));
    const at::Tensor of_heads = wanted.gradient.view(
        {sizes.batch, sizes.sequence, 3, sizes.groups, sizes.members, sizes.head_size});
    const TiledPasses got =
        run_tiles(sizes, item.probability, samples, qkv.to(type()), given.to(type()), GetParam());
    EXPECT_LE(error_of(got.result.view({sizes.batch * sizes.sequence, -1}), wanted.result),
              tolerance());
    EXPECT_LE(error_of(got.gradient.select(3, sizes.members + 1), of_heads.select(2, 2).sum(3)),
              tolerance());
    if (sizes.sequence == 1) continue;  // its weight is 1, whatever the score
    EXPECT_LE(error_of(got.gradient.narrow(3, 0, sizes.members), of_heads.select(2, 0)),
              tolerance());
    EXPECT_LE(error_of(got.gradient.select(3, sizes.members), of_heads.select(2, 1).sum(3)),
              tolerance());
  }
}

TEST_P(TiledAttentionOf, GroupsTakeWhatIsDeclared) {
  for (std::size_t number = 0; number < std::size(grouped_cases); ++number) {
    const TiledAttentionSizes& sizes = grouped_cases[number].sizes;
    SCOPED_TRACE(describe(sizes));
    Declaration declaration;
    declaration.threads = 1 + static_cast<int>(number % 2);
    test::use_threads(declaration.threads);
    declaration.precision = GetParam();
    const TiledAttentionBytes bytes = tiled_attention_bytes(declaration, sizes);
    const std::vector<std::int64_t> samples(static_cast<std::size_t>(sizes.batch), 3);
    const Context context = context_of(samples, GetParam());
    const at::NoGradGuard no_gradients;
    exec::DeviceTier tier(std::numeric_limits<std::int64_t>::max() / 2);
    const exec::DeviceScope scope(tier);
    const auto made = [&](std::int64_t heads) {
      return at::zeros({sizes.batch, sizes.sequence, sizes.groups, heads, sizes.head_size}, type());
    };
    const at::Tensor qkv = made(sizes.members + 2);
    const at::Tensor of_qkv = made(sizes.members + 2);
    const at::Tensor result = made(sizes.members);
    std::int64_t before = tier.live_bytes();
    const at::Tensor log_sums =
        at::empty({sizes.batch, sizes.heads(), sizes.sequence},
                  GetParam() == Precision::Float64 ? at::kDouble : at::kFloat);
    EXPECT_EQ(tier.live_bytes() - before, bytes.log_sums);
    before = tier.live_bytes();
    const auto taken = [&](const auto& pass) {
      tier.reset_peak();
      pass();
      EXPECT_EQ(tier.live_bytes(), before);
      return tier.peak_bytes() - before;
    };
    EXPECT_EQ(taken([&] { tiled_attention(context, sizes, {}, qkv, result, log_sums); }),
              bytes.forward);
    EXPECT_EQ(
        taken([&] { tiled_attention_backward(context, sizes, {}, qkv, log_sums, result, of_qkv); }),
        bytes.backward);
  }
  test::use_threads(2);
}

// What is declared and what is done follow from one question.
TEST(TiledAttention, IsTakenForBFloat16OnProcessorsWithoutIt) {
  EXPECT_EQ(attends_in_tiles(Precision::BFloat16, DeviceKind::Cpu), !multiplies_bfloat16());
  EXPECT_EQ(attends_in_tiles(Precision::BFloat16, DeviceKind::Emulated), !multiplies_bfloat16());
  for (const Precision precision : {Precision::Float32, Precision::Float64}) {
    EXPECT_FALSE(attends_in_tiles(precision, DeviceKind::Cpu));
    EXPECT_FALSE(attends_in_tiles(precision, DeviceKind::Emulated));
  }
  EXPECT_FALSE(attends_in_tiles(Precision::BFloat16, DeviceKind::Cuda));
}

TEST(TiledAttention, NodesHaveTheirBitsAndBytes) {
  const bool in_tiles = attends_in_tiles(Precision::BFloat16, DeviceKind::Cpu);
  Declaration declaration;
  declaration.precision = Precision::BFloat16;
  declaration.threads = 2;
  const std::vector<std::int64_t> samples = {3, 4};
  const Context context = context_of(samples, Precision::BFloat16);
  for (const std::int64_t members : {1, 3}) {
    SCOPED_TRACE(members);
    const TiledAttentionSizes sizes{2, 70, 2, members, 8};
    const Rows rows{sizes.batch, sizes.sequence};
    const at::Tensor qkv =
        random_numbers({rows.count(), sizes.groups * (members + 2) * sizes.head_size}, 1)
            .to(at::kBFloat16);
    const at::Tensor given =
        random_numbers({rows.count(), sizes.heads() * sizes.head_size}, 2).to(at::kBFloat16);
    const auto node = members == 1
                          ? make_attention(rows, sizes.groups, sizes.head_size)
                          : make_grouped_attention(rows, sizes.groups, members, sizes.head_size);
    const plan::NodeSpec spec = node->declare(declaration);
    EXPECT_EQ(spec.pins_output, !in_tiles);
    EXPECT_EQ(spec.cost_key.find(" tiled") != std::string::npos, in_tiles);
    if (!in_tiles) continue;
    const TiledAttentionBytes bytes = tiled_attention_bytes(declaration, sizes);
    EXPECT_EQ(spec.private_slot_bytes, (std::vector<std::int64_t>{bytes.log_sums}));
    EXPECT_EQ(spec.forward.transient_bytes, bytes.forward + bytes.log_sums);
    EXPECT_EQ(spec.forward_keep.transient_bytes, bytes.forward);
    EXPECT_EQ(spec.backward.transient_bytes, bytes.backward);
    const auto by_group = [&](const at::Tensor& x, std::int64_t heads) {
      // Queries of all heads stand before keys of all heads where each has its own.
      return heads == 3 && members == 1
                 ? x.view({2, 70, heads, sizes.groups, sizes.head_size}).transpose(2, 3)
                 : x.view({2, 70, sizes.groups, heads, sizes.head_size});
    };
    const AttentionPasses got = run_attention(*node, context, qkv, given);
    const TiledPasses wanted = run_tiles(sizes, 0, samples, by_group(qkv, members + 2),
                                         by_group(given, members), Precision::BFloat16);
    EXPECT_TRUE(at::equal(by_group(got.result, members), wanted.result));
    EXPECT_TRUE(at::equal(by_group(got.gradient, members + 2), wanted.gradient));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TiledAttentionOf,
                         testing::Values(Precision::Float32, Precision::Float64,
                                         Precision::BFloat16));

}  // namespace
}  // namespace garonne::nn
