// GPT against an independent one, written in plain operations of the tensor library with its
// autograd.
#include "nn/gpt/gpt.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "nn/compute_session.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"
#include "nn/layers/layers.hpp"
#include "nn/node_runner.hpp"

namespace garonne::nn {
namespace {

using test::ModelRun;
using test::Named;
using test::random_parameters;
using test::relative_error;

struct GptCase {
  GptSizes sizes;
  std::int64_t batch;
};

// Odd sizes among them: nothing may rest on multiples of a vector or of a block.
const GptCase gpt_cases[] = {
    {{1, 8, 2, 5, 11, 0}, 1},   {{2, 12, 3, 7, 13, 0}, 3},    {{3, 21, 3, 17, 29, 0}, 2},
    {{1, 64, 2, 33, 50, 0}, 2}, {{2, 32, 4, 200, 257, 0}, 1}, {{1, 16, 1, 1, 5, 0}, 4},
    {{1, 10, 10, 40, 3, 0}, 2},
};

std::string describe(const GptCase& item) {
  const GptSizes& s = item.sizes;
  return "layers " + std::to_string(s.layers) + " hidden " + std::to_string(s.hidden) + " heads " +
         std::to_string(s.heads) + " sequence " + std::to_string(s.sequence) + " vocabulary " +
         std::to_string(s.vocabulary) + " batch " + std::to_string(item.batch);
}

// The reference, in float64.
ModelRun reference(const GptCase& item, const Named& parameters, const at::Tensor& tokens,
                   const at::Tensor& targets) {
  const at::AutoGradMode with_gradients(true);
  const GptSizes& s = item.sizes;
  Named p;
  std::vector<at::Tensor> leaves;
  for (const auto& [name, value] : parameters) {
    p[name] = value.clone().requires_grad_(true);
    leaves.push_back(p[name]);
  }
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    const at::Tensor centred = x - x.mean({-1}, true);
    const at::Tensor variance = (centred * centred).mean({-1}, true);
    return centred / at::sqrt(variance + 1e-5) * p.at(name + ".weight") + p.at(name + ".bias");
  };
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::matmul(x, p.at(name + ".weight").t()) + p.at(name + ".bias");
  };
  const std::int64_t head = s.hidden / s.heads;
  const at::Tensor mask = at::ones({s.sequence, s.sequence}, at::kBool).tril().logical_not();
  at::Tensor x = at::embedding(p.at("token_embedding.weight"), tokens) +
                 p.at("position_embedding.weight").unsqueeze(0);
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string prefix = "layer." + std::to_string(layer) + ".";
    const at::Tensor qkv = linear(norm(x, prefix + "attention_norm"), prefix + "qkv");
    const auto part = [&](std::int64_t which) {
      return qkv.narrow(-1, which * s.hidden, s.hidden)
          .reshape({item.batch, s.sequence, s.heads, head})
          .transpose(1, 2);
    };
    const at::Tensor scores =
        at::matmul(part(0), part(1).transpose(-1, -2)) / std::sqrt(static_cast<double>(head));
    const at::Tensor weights = at::softmax(scores.masked_fill(mask, -INFINITY), -1);
    const at::Tensor attended =
        at::matmul(weights, part(2)).transpose(1, 2).reshape({item.batch, s.sequence, s.hidden});
    x = x + linear(attended, prefix + "projection");
    const at::Tensor up = linear(norm(x, prefix + "feed_forward_norm"), prefix + "up");
    const at::Tensor inner = std::sqrt(2.0 / std::numbers::pi) * (up + 0.044715 * up * up * up);
    x = x + linear(0.5 * up * (1 + at::tanh(inner)), prefix + "down");
  }
  const at::Tensor logits = at::matmul(norm(x, "final_norm"), p.at("token_embedding.weight").t());
  const at::Tensor loss =
      at::cross_entropy_loss(logits.reshape({-1, s.vocabulary}), targets.reshape({-1}));
  const auto gradients = torch::autograd::grad({loss}, leaves);
  ModelRun result;
  result.loss = loss.item<double>();
  std::size_t next = 0;
  for (const auto& [name, value] : parameters) result.gradients[name] = gradients[next++];
  return result;
}

ModelRun run_nodes(const Model& model, Precision precision, const Named& parameters,
                   const at::Tensor& tokens, const at::Tensor& targets, double loss_scale,
                   const Products& products) {
  return test::run_model(model, precision, parameters, {{"tokens", tokens}, {"targets", targets}},
                         loss_scale, /*records_apart=*/false, {3, 5, 100, products});
}

void check_case(const GptCase& item, Precision precision, double tolerance,
                const Products& products, double loss_scale) {
  SCOPED_TRACE(describe(item) + " " + precision_name(precision));
  Declaration declaration;
  declaration.precision = precision;
  const Model model = make_gpt(item.sizes, item.batch, declaration);
  at::manual_seed(23);
  const at::Tensor tokens =
      at::randint(item.sizes.vocabulary, {item.batch, item.sizes.sequence}, at::kLong);
  const at::Tensor targets =
      at::randint(item.sizes.vocabulary, {item.batch, item.sizes.sequence}, at::kLong);
  const Named parameters = random_parameters(model);
  const ModelRun wanted = reference(item, parameters, tokens, targets);
  const ModelRun got =
      run_nodes(model, precision, parameters, tokens, targets, loss_scale, products);
  EXPECT_NEAR(got.loss, wanted.loss, tolerance * wanted.loss);
  ASSERT_EQ(got.gradients.size(), wanted.gradients.size());
  // The gradient of a key's bias is zero but for rounding (softmax does not see a shift), so an
  // error is held against the largest gradient where a tensor's own is no measure.
  for (const auto& [name, gradient] : wanted.gradients) {
    EXPECT_LT(relative_error(got.gradients.at(name), gradient * loss_scale), tolerance) << name;
  }
}

TEST(Gpt, GradientsAndLossInFloat64) {
  for (const auto& item : gpt_cases) check_case(item, Precision::Float64, 1e-11, Products(), 1.0);
}

TEST(Gpt, GradientsAndLossInFloat32) {
  for (const auto& item : gpt_cases) check_case(item, Precision::Float32, 1e-5, Products(), 1.0);
}

TEST(Gpt, GradientsAndLossInBFloat16) {
  for (const auto& item : gpt_cases) check_case(item, Precision::BFloat16, 6e-2, Products(), 1.0);
}

TEST(Gpt, LossScaleMultipliesEveryGradient) {
  for (const auto& item : {gpt_cases[1], gpt_cases[3]})
    check_case(item, Precision::Float64, 1e-11, Products(), 0.125);
}

// Every library that may be chosen for a product gives the same model.
TEST(Gpt, EveryProductLibrary) {
  for (const Precision precision : {Precision::Float32, Precision::Float64}) {
    for (const char* name : {"oneDNN", "OpenBLAS"}) {
      const ProductLibrary* library = find_product_library(name);
      const GptCase& item = gpt_cases[2];
      Declaration declaration;
      declaration.precision = precision;
      const Model model = make_gpt(item.sizes, item.batch, declaration);
      Products products;
      int chosen = 0;
      for (const auto& parameter : model.graph.parameters) {
        if (parameter.shape.size() != 2) continue;
        for (const auto form :
             {ProductForm::Forward, ProductForm::InputGradient, ProductForm::WeightGradient}) {
          const ProductShape shape{form, item.batch * item.sizes.sequence, parameter.shape[0],
                                   parameter.shape[1], precision};
          const auto candidates = product_candidates(shape, DeviceKind::Cpu);
          if (std::find(candidates.begin(), candidates.end(), library) == candidates.end())
            continue;
          products.choose(shape, *library);
          ++chosen;
        }
      }
      if (chosen == 0) continue;
      SCOPED_TRACE(name);
      check_case(item, precision, precision == Precision::Float64 ? 1e-11 : 1e-5, products, 0.5);
    }
  }
}

TEST(Gpt, EqualOnOneAndTwoThreads) {
  const GptCase& item = gpt_cases[3];
  const Model model = make_gpt(item.sizes, item.batch, Declaration());
  const Named parameters = random_parameters(model);
  at::manual_seed(23);
  const at::Tensor tokens =
      at::randint(item.sizes.vocabulary, {item.batch, item.sizes.sequence}, at::kLong);
  const auto run = [&] {
    return run_nodes(model, Precision::Float32, parameters, tokens, tokens, 1.0, Products());
  };
  const ModelRun two = run();
  const ModelRun again = run();
  garonne::test::use_threads(1);
  const ModelRun one = run();
  garonne::test::use_threads(2);
  EXPECT_EQ(two.loss, again.loss);
  EXPECT_NEAR(one.loss, two.loss, 1e-6 * two.loss);
  for (const auto& [name, gradient] : two.gradients) {
    EXPECT_TRUE(at::equal(gradient, again.gradients.at(name)))
        << name << " changes from run to run";
  }
}

TEST(Gpt, ParametersAndBoxes) {
  const GptSizes sizes{2, 24, 4, 9, 15, 0};
  const Model model = make_gpt(sizes, 2, Declaration());
  // Twelve matrices and vectors a layer, two tables, the final norm; the head is the token table.
  EXPECT_EQ(model.graph.parameters.size(), 2 * 12 + 2 + 2U);
  EXPECT_EQ(model.graph.parameter_elements(),
            15 * 24 + 9 * 24 + 2 * 24 +
                2 * (4 * 24 + 24 * 72 + 72 + 24 * 24 + 24 + 24 * 96 + 96 + 96 * 24 + 24));
  for (std::size_t k = 0; k < model.graph.parameters.size(); ++k) {
    const auto& parameter = model.graph.parameters[k];
    EXPECT_EQ(model.boxes[k].elements(), parameter.elements) << parameter.name;
    EXPECT_EQ(parameter.decays, parameter.shape.size() >= 2) << parameter.name;
    if (parameter.name == "layer.1.qkv.weight") {
      EXPECT_EQ(model.boxes[k].global, (std::vector<std::int64_t>{3, 4, 6, 24}));
    }
  }
}

TEST(Gpt, SizesThatDoNotFit) {
  EXPECT_THROW(make_gpt({1, 10, 3, 4, 5, 0}, 1, Declaration()), ConfigError);
  EXPECT_THROW(make_gpt({1, 10, 2, 4, 0, 0}, 1, Declaration()), ConfigError);
}

// ---- dropout

constexpr std::int64_t row_hidden = 37;

at::Tensor dropped(const Node& node, const std::vector<std::int64_t>& samples, Rows rows,
                   std::uint64_t seed = 3, std::uint64_t step = 5, bool training = true) {
  const at::NoGradGuard no_gradients;
  Context context;
  context.seed = seed;
  context.step = step;
  context.training = training;
  context.samples = samples.data();
  context.batch = static_cast<std::int64_t>(samples.size());
  const at::Tensor zeros = at::zeros({rows.count(), row_hidden});
  return node.forward(context, {zeros, at::ones_like(zeros)}, {}, nullptr)
      .view({rows.batch, rows.sequence, row_hidden});
}

TEST(Dropout, MaskBelongsToTheSampleWhereverItStands) {
  constexpr std::int64_t sequence = 23;
  const auto node = [&](std::int64_t batch) {
    return make_dropout_add("layer.0.attention_residual", {batch, sequence}, row_hidden, 0.25);
  };
  const at::Tensor three = dropped(*node(3), {41, 7, 1000000007}, {3, sequence});
  const at::Tensor turned = dropped(*node(3), {7, 1000000007, 41}, {3, sequence});
  const at::Tensor alone = dropped(*node(1), {7}, {1, sequence});
  EXPECT_TRUE(at::equal(three[0], turned[2]));
  EXPECT_TRUE(at::equal(three[1], turned[0]));
  EXPECT_TRUE(at::equal(three[2], turned[1]));
  EXPECT_TRUE(at::equal(three[1], alone[0]));
  EXPECT_FALSE(at::equal(three[0], three[1]));
  EXPECT_FALSE(at::equal(three[1], three[2]));
}

TEST(Dropout, OtherSeedStepOrNameGiveOtherMasks) {
  const Rows rows{1, 23};
  const auto node = make_dropout_add("a", rows, row_hidden, 0.25);
  const at::Tensor mask = dropped(*node, {7}, rows);
  EXPECT_TRUE(at::equal(mask, dropped(*node, {7}, rows)));
  EXPECT_FALSE(at::equal(mask, dropped(*node, {7}, rows, 4)));
  EXPECT_FALSE(at::equal(mask, dropped(*node, {7}, rows, 3, 6)));
  EXPECT_FALSE(at::equal(mask, dropped(*make_dropout_add("b", rows, row_hidden, 0.25), {7}, rows)));
}

TEST(Dropout, KeepsTheRightShareAndScalesIt) {
  const Rows rows{4, 500};
  for (const double probability : {0.1, 0.5, 0.9}) {
    const auto node = make_dropout_add("a", rows, row_hidden, probability);
    const at::Tensor mask = dropped(*node, {0, 1, 2, 3}, rows);
    const double share = (mask == 0).to(at::kDouble).mean().item<double>();
    // Five deviations of 74000 throws.
    EXPECT_NEAR(share, probability, 5 * std::sqrt(probability * (1 - probability) / 74000));
    const at::Tensor kept = mask.masked_select(mask != 0);
    EXPECT_NEAR(kept.min().item<double>(), 1 / (1 - probability), 1e-5);
    EXPECT_NEAR(kept.max().item<double>(), 1 / (1 - probability), 1e-5);
    EXPECT_TRUE(at::equal(dropped(*node, {0, 1, 2, 3}, rows, 3, 5, /*training=*/false),
                          at::ones_like(mask)));
  }
}

TEST(Dropout, BackwardUsesTheMaskOfTheForward) {
  const at::NoGradGuard no_gradients;
  const Rows rows{2, 11};
  const auto node = make_dropout_add("a", rows, row_hidden, 0.4);
  const std::vector<std::int64_t> samples = {9, 4};
  const at::Tensor mask = dropped(*node, samples, rows).view({rows.count(), row_hidden});
  Context context;
  context.seed = 3;
  context.step = 5;
  context.samples = samples.data();
  context.batch = 2;
  at::manual_seed(1);
  const at::Tensor gradient = at::randn({rows.count(), row_hidden});
  const at::Tensor before = gradient.clone();
  Record record;
  BackwardArguments arguments;
  arguments.inputs.resize(2);
  arguments.output_gradient = gradient;
  arguments.wanted = {true, true};
  arguments.add_to.resize(2);
  arguments.overwrite.assign(2, false);
  arguments.record = &record;
  const auto made = node->backward(context, arguments);
  EXPECT_TRUE(at::equal(made[0], before));
  EXPECT_TRUE(at::allclose(made[1], before * mask, 1e-6, 0));
  EXPECT_TRUE(at::equal(gradient, before)) << "the incoming gradient is not the node's to change";
}

TEST(Dropout, EmbeddingToo) {
  const at::NoGradGuard no_gradients;
  at::manual_seed(2);
  const std::int64_t sequence = 13;
  const at::Tensor table = at::randn({17, row_hidden});
  const at::Tensor positions = at::randn({sequence, row_hidden});
  const at::Tensor tokens = at::randint(17, {2, sequence}, at::kLong);
  const auto run = [&](const at::Tensor& rows, std::vector<std::int64_t> samples) {
    const auto batch = static_cast<std::int64_t>(samples.size());
    const auto node = make_embedding("embedding", {batch, sequence}, row_hidden, 17, sequence, 0.3);
    Context context;
    context.seed = 8;
    context.step = 2;
    context.samples = samples.data();
    context.batch = batch;
    return node->forward(context, {rows.reshape({-1}).contiguous()}, {table, positions}, nullptr)
        .view({batch, sequence, row_hidden});
  };
  const at::Tensor both = run(tokens, {5, 6});
  EXPECT_TRUE(at::equal(run(tokens[1], {6})[0], both[1]));
  EXPECT_TRUE(at::equal(run(tokens.flip(0), {6, 5}).flip(0), both));
  const at::Tensor whole =
      table.index_select(0, tokens.reshape({-1})).view({2, sequence, row_hidden}) + positions;
  const at::Tensor kept = both != 0;
  EXPECT_TRUE(at::allclose(both, whole * kept / 0.7, 1e-5, 1e-6));
  // Five standard errors of a share.
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.7,
              5 * std::sqrt(0.7 * 0.3 / static_cast<double>(kept.numel())));
}

}  // namespace
}  // namespace garonne::nn
