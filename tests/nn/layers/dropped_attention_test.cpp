// Dropout of attention's weights, beside attention that has the whole matrix in memory.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "exec/device_tier.hpp"
#include "nn/compute_session.hpp"
#include "nn/element_type.hpp"
#include "nn/layers/layers.hpp"
#include "nn/layers/whole_attention.hpp"

namespace garonne::nn {
namespace {

using namespace test;

// One row, one tile and a part of it, two tiles of which the last has few rows.
const AttentionCase dropout_cases[] = {
    {1, 1, 1, 1, 0, 0.5},   {3, 1, 2, 3, 0, 0.3},    {2, 7, 3, 5, 0, 0.25},
    {1, 7, 2, 8, 5, 0.9},   {2, 130, 3, 5, 4, 0.25}, {1, 130, 1, 16, 0, 0.1},
    {2, 128, 2, 4, 1, 0.5}, {1, 257, 5, 7, 2, 0.2},  {1, 700, 5, 8, 3, 0.15},
};

Rows rows_of(const AttentionCase& item) {
  return {item.batch, item.sequence};
}

std::unique_ptr<Node> node_of(const AttentionCase& item) {
  return make_attention(rows_of(item), item.heads, item.head_size,
                        {item.probability, attention_name, item.first_head});
}

class DroppedAttentionOf : public testing::TestWithParam<Precision> {
 protected:
  at::ScalarType type() const { return compute_scalar_type(GetParam()); }
  double tolerance() const {
    return GetParam() == Precision::Float64   ? 1e-13
           : GetParam() == Precision::Float32 ? 2e-6
                                              : 4e-3;
  }
};

TEST_P(DroppedAttentionOf, ValuesAndGradientsAreThoseOfTheWholeMatrix) {
  for (const AttentionCase& item : dropout_cases) {
    SCOPED_TRACE(describe(item));
    const std::int64_t rows = item.batch * item.sequence;
    const std::int64_t width = item.heads * item.head_size;
    const at::Tensor qkv = random_numbers({rows, 3 * width}, 1);
    const at::Tensor given = random_numbers({rows, width}, 2);
    const AttentionPasses wanted = attention_reference(item, qkv, given);
    const std::vector<std::int64_t> samples = samples_of(item);
    const AttentionPasses got = run_attention(*node_of(item), context_of(samples, GetParam()),
                                              qkv.to(type()), given.to(type()));
    EXPECT_EQ(got.result.scalar_type(), type());
    EXPECT_EQ(got.gradient.scalar_type(), type());
    ASSERT_EQ(got.result.sizes(), wanted.result.sizes());
    ASSERT_EQ(got.gradient.sizes(), wanted.gradient.sizes());
    EXPECT_LE(error_of(got.result, wanted.result), tolerance());
    // One row's weight is 1, whatever its score.
    for (std::int64_t which = 0; which < 3; ++which) {
      const auto part = [&](const at::Tensor& all) {
        return all.view({rows, 3, width}).select(1, which);
      };
      const double of_nothing = part(wanted.gradient).norm().item<double>() < 1e-10 ? 1 : 0;
      const double error = of_nothing > 0 ? part(got.gradient).to(at::kDouble).norm().item<double>()
                                          : error_of(part(got.gradient), part(wanted.gradient));
      EXPECT_LE(error, tolerance()) << "part " << which;
    }
  }
}

TEST_P(DroppedAttentionOf, HasTheSameBitsWhenItRunsAgain) {
  const AttentionCase& item = dropout_cases[4];
  const std::int64_t rows = item.batch * item.sequence;
  const std::int64_t width = item.heads * item.head_size;
  const at::Tensor qkv = random_numbers({rows, 3 * width}, 1).to(type());
  const at::Tensor given = random_numbers({rows, width}, 2).to(type());
  const std::vector<std::int64_t> samples = samples_of(item);
  const Context context = context_of(samples, GetParam());
  const auto node = node_of(item);
  const AttentionPasses first = run_attention(*node, context, qkv, given);
  const AttentionPasses again = run_attention(*node, context, qkv, given);
  EXPECT_TRUE(at::equal(first.result, again.result));
  EXPECT_TRUE(at::equal(first.gradient, again.gradient));
  EXPECT_TRUE(at::equal(first.result, node->forward(context, {qkv}, {}, nullptr)));
}

// Without a copy of the whole sequence's scores, whatever its length: what is allocated is what is
// declared.
TEST_P(DroppedAttentionOf, TakesWhatItDeclares) {
  for (const AttentionCase& item :
       {AttentionCase{1, 2048, 2, 16, 0, 0.1}, AttentionCase{3, 130, 3, 5, 0, 0.1},
        AttentionCase{2, 300, 9, 8, 0, 0.1}, AttentionCase{1, 1, 1, 1, 0, 0.1}}) {
    SCOPED_TRACE(describe(item));
    Declaration declaration;
    declaration.precision = GetParam();
    declaration.threads = 1;
    test::use_threads(1);
    const auto node = node_of(item);
    const plan::NodeSpec spec = node->declare(declaration);
    const std::int64_t rows = item.batch * item.sequence;
    const std::int64_t width = item.heads * item.head_size;
    exec::DeviceTier tier(std::numeric_limits<std::int64_t>::max() / 2);
    const at::Tensor qkv = random_numbers({rows, 3 * width}, 1).to(type());
    const at::Tensor given = random_numbers({rows, width}, 2).to(type());
    const std::vector<std::int64_t> samples = samples_of(item);
    const Context context = context_of(samples, GetParam());
    const at::NoGradGuard no_gradients;
    const exec::DeviceScope scope(tier);
    Record record;
    const at::Tensor result = node->forward(context, {qkv}, {}, &record);
    const std::int64_t left = declaration.tensor(rows * width) + spec.private_slot_bytes.at(0);
    EXPECT_EQ(tier.live_bytes(), left);
    EXPECT_EQ(tier.peak_bytes() - left, spec.forward_keep.transient_bytes);
    EXPECT_EQ(spec.forward.transient_bytes,
              spec.forward_keep.transient_bytes + spec.private_slot_bytes[0]);
    tier.reset_peak();
    BackwardArguments arguments;
    arguments.inputs = {qkv};
    arguments.output_gradient = given;
    arguments.wanted = {true};
    arguments.add_to.resize(1);
    arguments.overwrite.assign(1, false);
    arguments.record = &record;
    const auto made = node->backward(context, arguments);
    EXPECT_EQ(tier.live_bytes(), left + declaration.tensor(3 * rows * width));
    EXPECT_EQ(tier.peak_bytes() - tier.live_bytes(), spec.backward.transient_bytes);
    if (item.sequence == 2048) {
      // A quarter of one matrix of scores, of all heads and both passes.
      EXPECT_LT(spec.backward.transient_bytes, 2048 * 2048 * state_bytes(GetParam()) / 4);
    }
  }
  test::use_threads(2);
}

INSTANTIATE_TEST_SUITE_P(Types, DroppedAttentionOf,
                         testing::Values(Precision::Float32, Precision::Float64,
                                         Precision::BFloat16));

// A rank that has some of the heads drops what one that has all does.
TEST(DroppedAttention, MasksBelongToHeadsOfTheModel) {
  const AttentionCase whole{2, 37, 4, 3, 0, 0.4};
  const std::vector<std::int64_t> samples = samples_of(whole);
  const Context context = context_of(samples, Precision::Float64);
  const at::Tensor qkv = random_numbers({2 * 37, 3, 4, 3}, 1);
  const at::Tensor given = random_numbers({2 * 37, 4, 3}, 2);
  const AttentionPasses all =
      run_attention(*node_of(whole), context, qkv.view({2 * 37, 36}), given.view({-1, 12}));
  for (const std::int64_t first : {0, 2}) {
    AttentionCase half = whole;
    half.heads = 2;
    half.first_head = first;
    const AttentionPasses some = run_attention(
        *node_of(half), context, qkv.narrow(2, first, 2).contiguous().view({2 * 37, 18}),
        given.narrow(1, first, 2).contiguous().view({2 * 37, 6}));
    EXPECT_LE(
        error_of(some.result.view({-1, 2, 3}), all.result.view({-1, 4, 3}).narrow(1, first, 2)),
        1e-14);
    EXPECT_LE(error_of(some.gradient.view({-1, 3, 2, 3}),
                       all.gradient.view({-1, 3, 4, 3}).narrow(2, first, 2)),
              1e-14);
  }
}

// The result of values that are all 1, with equal scores, says how many weights are kept.
TEST(DroppedAttention, KeepsTheRightShareAndOtherStepsOtherWeights) {
  for (const double probability : {0.1, 0.5, 0.9}) {
    const AttentionCase item{2, 200, 4, 1, 0, probability};
    const std::vector<std::int64_t> samples = samples_of(item);
    at::Tensor qkv = at::zeros({400, 3, 4}, at::TensorOptions().dtype(at::kDouble));
    qkv.select(1, 2).fill_(1);
    const auto result_of = [&](std::uint64_t number, bool training) {
      const at::NoGradGuard no_gradients;
      Context context = context_of(samples, Precision::Float64);
      context.step = number;
      context.training = training;
      return node_of(item)->forward(context, {qkv.view({400, 12})}, {}, nullptr);
    };
    const at::Tensor result = result_of(4, true);
    // Row i is the mean of i + 1 factors.
    const at::Tensor seen =
        at::arange(1, 201, at::TensorOptions().dtype(at::kDouble)).repeat({2}).unsqueeze(1);
    const double kept = (result * seen).sum().item<double>() * (1 - probability);
    const double throws = 2 * 4 * 200 * 201 / 2.0;
    EXPECT_NEAR(kept / throws, 1 - probability,
                5 * std::sqrt(probability * (1 - probability) / throws));
    EXPECT_FALSE(at::equal(result, result_of(5, true)));
    EXPECT_FALSE(at::equal(result.narrow(0, 0, 200), result.narrow(0, 200, 200)))
        << "of another sample";
    EXPECT_LE(error_of(result_of(4, false), at::ones_like(result)), 1e-14) << "not in training";
  }
}

TEST(DroppedAttention, OutsideOfTrainingIsAttention) {
  const AttentionCase item{2, 130, 3, 8, 1, 0.5};
  const std::vector<std::int64_t> samples = samples_of(item);
  Context context = context_of(samples, Precision::Float64);
  context.training = false;
  const at::Tensor qkv = random_numbers({260, 72}, 1);
  const at::NoGradGuard no_gradients;
  const auto plain = make_attention({2, 130}, 3, 8);
  EXPECT_LE(error_of(node_of(item)->forward(context, {qkv}, {}, nullptr),
                     plain->forward(context, {qkv}, {}, nullptr)),
            1e-14);
}

// Without dropout it is the node of before; what a profile measured of one is not taken for both.
TEST(DroppedAttention, HasACostOfItsOwn) {
  const Declaration declaration;
  const auto plain = make_attention({2, 130}, 3, 8, {0, attention_name, 1})->declare(declaration);
  const auto dropped =
      make_attention({2, 130}, 3, 8, {0.1, attention_name, 1})->declare(declaration);
  EXPECT_EQ(plain.cost_key, make_attention({2, 130}, 3, 8)->declare(declaration).cost_key);
  EXPECT_NE(plain.cost_key, dropped.cost_key);
  EXPECT_EQ(plain.kind, dropped.kind);
  EXPECT_EQ(plain.forward.floating_point_operations, dropped.forward.floating_point_operations);
  EXPECT_EQ(plain.backward.floating_point_operations, dropped.backward.floating_point_operations);
  EXPECT_TRUE(plain.pins_output);
  EXPECT_FALSE(dropped.pins_output);
}

}  // namespace
}  // namespace garonne::nn
