// Attention with dropout of its weights, beside one that has the whole matrix in memory and knows
// nothing of tiles, in double and loop by loop.
#include "nn/layers/dropped_attention.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.hpp"
#include "exec/device_tier.hpp"
#include "nn/element_type.hpp"
#include "nn/layers/layers.hpp"

namespace garonne::nn {
namespace {

constexpr const char* node_name = "layer.3.attention";
constexpr std::uint64_t seed = 11;
constexpr std::uint64_t step = 4;

struct Case {
  std::int64_t batch;
  std::int64_t sequence;
  std::int64_t heads;
  std::int64_t head_size;
  std::int64_t first_head;
  double probability;
};

// One row, one tile and a part of it, two tiles of which the last has few rows.
const Case cases[] = {
    {1, 1, 1, 1, 0, 0.5},   {3, 1, 2, 3, 0, 0.3},    {2, 7, 3, 5, 0, 0.25},
    {1, 7, 2, 8, 5, 0.9},   {2, 130, 3, 5, 4, 0.25}, {1, 130, 1, 16, 0, 0.1},
    {2, 128, 2, 4, 1, 0.5}, {1, 257, 5, 7, 2, 0.2},  {1, 700, 5, 8, 3, 0.15},
};

// A sample beyond what 32 bits hold is among them.
std::vector<std::int64_t> samples_of(const Case& item) {
  std::vector<std::int64_t> samples;
  for (std::int64_t b = 0; b < item.batch; ++b) samples.push_back((7 + 5 * b) | (b % 2 << 40));
  return samples;
}

Rows rows_of(const Case& item) {
  return {item.batch, item.sequence};
}

std::unique_ptr<Node> node_of(const Case& item) {
  return make_attention(rows_of(item), item.heads, item.head_size,
                        {item.probability, node_name, item.first_head});
}

Context context_of(const std::vector<std::int64_t>& samples, Precision precision) {
  Context context;
  context.precision = precision;
  context.seed = seed;
  context.step = step;
  context.samples = samples.data();
  context.batch = static_cast<std::int64_t>(samples.size());
  return context;
}

struct Passes {
  at::Tensor result;
  at::Tensor gradient;  // of qkv
};

Passes run(const Node& node, const Context& context, const at::Tensor& qkv,
           const at::Tensor& of_result) {
  const at::NoGradGuard no_gradients;
  Record record;
  Passes passes;
  passes.result = node.forward(context, {qkv}, {}, &record);
  BackwardArguments arguments;
  arguments.inputs = {qkv};
  arguments.output_gradient = of_result;
  arguments.wanted = {true};
  arguments.add_to.resize(1);
  arguments.overwrite.assign(1, false);
  arguments.record = &record;
  passes.gradient = node.backward(context, arguments)[0];
  return passes;
}

// 0, or what a weight is multiplied by.
double mask(const Case& item, std::int64_t sample, std::int64_t head, std::int64_t row,
            std::int64_t column) {
  const auto element = static_cast<std::uint64_t>(
      ((item.first_head + head) * item.sequence + row) * item.sequence + column);
  const PhiloxBlock block =
      philox_at(philox_key(seed, node_name), step, static_cast<std::uint64_t>(sample), element / 4);
  const bool kept = block.word[element % 4] >= dropout_threshold(item.probability);
  return kept ? 1 / (1 - item.probability) : 0;
}

// The reference, of float64 numbers.
Passes reference(const Case& item, const at::Tensor& qkv, const at::Tensor& of_result) {
  const std::int64_t length = item.sequence;
  const std::int64_t size = item.head_size;
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  const std::vector<std::int64_t> samples = samples_of(item);
  Passes passes{at::zeros_like(of_result), at::zeros_like(qkv)};
  const double* x = qkv.const_data_ptr<double>();
  const double* given = of_result.const_data_ptr<double>();
  auto* out = passes.result.data_ptr<double>();
  auto* gradient = passes.gradient.data_ptr<double>();
  for (std::int64_t b = 0; b < item.batch; ++b) {
    for (std::int64_t h = 0; h < item.heads; ++h) {
      const auto part = [&](std::int64_t which, std::int64_t row) {
        return (((b * length + row) * 3 + which) * item.heads + h) * size;
      };
      const auto place = [&](std::int64_t row) {
        return ((b * length + row) * item.heads + h) * size;
      };
      const auto dot = [&](const double* left, const double* right) {
        double sum = 0;
        for (std::int64_t e = 0; e < size; ++e) sum += left[e] * right[e];
        return sum;
      };
      for (std::int64_t i = 0; i < length; ++i) {
        std::vector<double> weights;
        double total = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          weights.push_back(std::exp(scale * dot(x + part(0, i), x + part(1, j))));
          total += weights.back();
        }
        std::vector<double> factors;
        std::vector<double> of_weights;
        double mean = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          const auto at = static_cast<std::size_t>(j);
          weights[at] /= total;
          factors.push_back(mask(item, samples[static_cast<std::size_t>(b)], h, i, j));
          of_weights.push_back(factors[at] * dot(given + place(i), x + part(2, j)));
          mean += weights[at] * of_weights[at];
        }
        for (std::int64_t j = 0; j <= i; ++j) {
          const auto at = static_cast<std::size_t>(j);
          const double of_score = scale * weights[at] * (of_weights[at] - mean);
          for (std::int64_t e = 0; e < size; ++e) {
            out[place(i) + e] += weights[at] * factors[at] * x[part(2, j) + e];
            gradient[part(0, i) + e] += of_score * x[part(1, j) + e];
            gradient[part(1, j) + e] += of_score * x[part(0, i) + e];
            gradient[part(2, j) + e] += weights[at] * factors[at] * given[place(i) + e];
          }
        }
      }
    }
  }
  return passes;
}

// Numbers that every precision has.
at::Tensor random_numbers(at::IntArrayRef shape, std::uint64_t which) {
  at::manual_seed(which);
  return at::randn(shape, at::TensorOptions().dtype(at::kDouble)).to(at::kBFloat16).to(at::kDouble);
}

std::string describe(const Case& item) {
  return std::to_string(item.batch) + " x " + std::to_string(item.sequence) + " x " +
         std::to_string(item.heads) + " x " + std::to_string(item.head_size);
}

double error_of(const at::Tensor& got, const at::Tensor& wanted) {
  return (got.to(at::kDouble) - wanted).norm().item<double>() /
         (wanted.norm().item<double>() + 1e-30);
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
  for (const Case& item : cases) {
    SCOPED_TRACE(describe(item));
    const std::int64_t rows = item.batch * item.sequence;
    const std::int64_t width = item.heads * item.head_size;
    const at::Tensor qkv = random_numbers({rows, 3 * width}, 1);
    const at::Tensor given = random_numbers({rows, width}, 2);
    const Passes wanted = reference(item, qkv, given);
    const std::vector<std::int64_t> samples = samples_of(item);
    const Passes got =
        run(*node_of(item), context_of(samples, GetParam()), qkv.to(type()), given.to(type()));
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
  const Case& item = cases[4];
  const std::int64_t rows = item.batch * item.sequence;
  const std::int64_t width = item.heads * item.head_size;
  const at::Tensor qkv = random_numbers({rows, 3 * width}, 1).to(type());
  const at::Tensor given = random_numbers({rows, width}, 2).to(type());
  const std::vector<std::int64_t> samples = samples_of(item);
  const Context context = context_of(samples, GetParam());
  const auto node = node_of(item);
  const Passes first = run(*node, context, qkv, given);
  const Passes again = run(*node, context, qkv, given);
  EXPECT_TRUE(at::equal(first.result, again.result));
  EXPECT_TRUE(at::equal(first.gradient, again.gradient));
  EXPECT_TRUE(at::equal(first.result, node->forward(context, {qkv}, {}, nullptr)));
}

// Without a copy of the whole sequence's scores, whatever its length: what is allocated is what is
// declared.
TEST_P(DroppedAttentionOf, TakesWhatItDeclares) {
  for (const Case& item : {Case{1, 2048, 2, 16, 0, 0.1}, Case{3, 130, 3, 5, 0, 0.1},
                           Case{2, 300, 9, 8, 0, 0.1}, Case{1, 1, 1, 1, 0, 0.1}}) {
    SCOPED_TRACE(describe(item));
    Declaration declaration;
    declaration.precision = GetParam();
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
}

INSTANTIATE_TEST_SUITE_P(Types, DroppedAttentionOf,
                         testing::Values(Precision::Float32, Precision::Float64,
                                         Precision::BFloat16));

// By hand: a tile of 128 rows, copies of a head and its sums.
TEST(DroppedAttentionBytes, GrowWithTheSequenceAndNotWithItsSquare) {
  Declaration declaration;
  const DroppedAttentionBytes bytes = dropped_attention_bytes(declaration, {2, 4096, 12, 64});
  const std::int64_t part = 4096 * 64;
  const std::int64_t scores = 128 * 4096;
  EXPECT_EQ(bytes.log_sums, 4 * 2 * 12 * 4096);
  EXPECT_EQ(bytes.forward, 4 * (3 * part + scores + 128 * 64));
  EXPECT_EQ(bytes.backward, 4 * (5 * part + 2 * scores + 2 * 128 * 64));
  const DroppedAttentionBytes longer = dropped_attention_bytes(declaration, {2, 8192, 12, 64});
  EXPECT_LE(longer.forward, 2 * bytes.forward);
  EXPECT_LE(longer.backward, 2 * bytes.backward);
  // On a GPU all heads of some samples at once.
  declaration.device = {DeviceKind::Cuda, 90, 132};
  const AttentionTiles tiles = attention_tiles({8, 1024, 12, 64}, DeviceKind::Cuda);
  EXPECT_EQ(tiles.samples, 8);
  EXPECT_EQ(tiles.heads, 12);
  EXPECT_EQ(dropped_attention_bytes(declaration, {8, 1024, 12, 64}).forward,
            96 * 4 * (3 * 1024 * 64 + 128 * 1024 + 128 * 64));
  EXPECT_LE(attention_tiles({8, 8192, 96, 64}, DeviceKind::Cuda).heads, 32);
}

// A rank that has some of the heads drops what one that has all does.
TEST(DroppedAttention, MasksBelongToHeadsOfTheModel) {
  const Case whole{2, 37, 4, 3, 0, 0.4};
  const std::vector<std::int64_t> samples = samples_of(whole);
  const Context context = context_of(samples, Precision::Float64);
  const at::Tensor qkv = random_numbers({2 * 37, 3, 4, 3}, 1);
  const at::Tensor given = random_numbers({2 * 37, 4, 3}, 2);
  const Passes all = run(*node_of(whole), context, qkv.view({2 * 37, 36}), given.view({-1, 12}));
  for (const std::int64_t first : {0, 2}) {
    Case half = whole;
    half.heads = 2;
    half.first_head = first;
    const Passes some =
        run(*node_of(half), context, qkv.narrow(2, first, 2).contiguous().view({2 * 37, 18}),
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
    const Case item{2, 200, 4, 1, 0, probability};
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
  const Case item{2, 130, 3, 8, 1, 0.5};
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
  const auto plain = make_attention({2, 130}, 3, 8, {0, node_name, 1})->declare(declaration);
  const auto dropped = make_attention({2, 130}, 3, 8, {0.1, node_name, 1})->declare(declaration);
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
