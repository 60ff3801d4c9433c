// Llama against an independent one, written in plain operations of the tensor library with its
// autograd.
#include "nn/gpt/llama.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cmath>

#include "base/error.hpp"
#include "exec/profile/profile.hpp"
#include "nn/compute_session.hpp"
#include "nn/declared_bytes.hpp"
#include "nn/node_runner.hpp"

namespace garonne::nn {
namespace {

using test::ModelRun;
using test::Named;
using test::random_parameters;
using test::relative_error;

struct LlamaCase {
  LlamaSizes sizes;
  std::int64_t batch;
};

LlamaSizes sizes_of(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                    std::int64_t kv_heads, std::int64_t inner, std::int64_t sequence,
                    std::int64_t vocabulary, bool tied) {
  LlamaSizes sizes;
  sizes.layers = layers;
  sizes.hidden = hidden;
  sizes.heads = heads;
  sizes.kv_heads = kv_heads;
  sizes.inner = inner;
  sizes.sequence = sequence;
  sizes.vocabulary = vocabulary;
  sizes.rope_theta = 500;
  sizes.tied_embeddings = tied;
  return sizes;
}

// As many heads of keys as of queries, fewer, and one; odd sizes among them.
std::vector<LlamaCase> llama_cases() {
  return {{sizes_of(1, 8, 2, 2, 5, 5, 11, false), 1},
          {sizes_of(2, 12, 6, 2, 17, 7, 13, true), 3},
          {sizes_of(2, 24, 4, 1, 31, 33, 29, false), 2},
          {sizes_of(1, 64, 4, 2, 40, 200, 50, true), 1},
          {sizes_of(1, 6, 3, 3, 1, 1, 5, false), 2}};
}

std::string describe(const LlamaCase& item) {
  const LlamaSizes& s = item.sizes;
  return "hidden " + std::to_string(s.hidden) + " heads " + std::to_string(s.heads) + " of keys " +
         std::to_string(s.kv_heads) + " sequence " + std::to_string(s.sequence);
}

// The reference, in float64: heads of keys and values are repeated, positions are complex numbers.
ModelRun reference(const LlamaCase& item, const Named& parameters, const at::Tensor& tokens,
                   const at::Tensor& targets) {
  const at::AutoGradMode with_gradients(true);
  const LlamaSizes& s = item.sizes;
  Named p;
  std::vector<at::Tensor> leaves;
  for (const auto& [name, value] : parameters) {
    p[name] = value.clone().requires_grad_(true);
    leaves.push_back(p[name]);
  }
  const std::int64_t head = s.hidden / s.heads;
  const std::int64_t members = s.heads / s.kv_heads;
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return x / at::sqrt((x * x).mean({-1}, true) + s.norm_epsilon) * p.at(name + ".weight");
  };
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::matmul(x, p.at(name + ".weight").t());
  };
  // e^(i position frequency), of angles in float32.
  std::vector<double> angles;
  for (std::int64_t position = 0; position < s.sequence; ++position) {
    for (std::int64_t i = 0; i < head / 2; ++i) {
      const float frequency = 1.0F / std::pow(static_cast<float>(s.rope_theta),
                                              static_cast<float>(2 * i) / static_cast<float>(head));
      angles.push_back(static_cast<float>(position) * frequency);
    }
  }
  const at::Tensor angle = at::tensor(angles, at::kDouble).view({s.sequence, head / 2});
  const at::Tensor turns = at::complex(at::cos(angle).to(at::kFloat).to(at::kDouble),
                                       at::sin(angle).to(at::kFloat).to(at::kDouble));
  // [batch, heads, sequence, head]
  const auto rotated = [&](const at::Tensor& x) {
    const at::Tensor numbers = at::complex(x.narrow(-1, 0, head / 2).contiguous(),
                                           x.narrow(-1, head / 2, head / 2).contiguous());
    const at::Tensor turned = numbers * turns;
    return at::cat({at::real(turned), at::imag(turned)}, -1);
  };
  const at::Tensor mask = at::ones({s.sequence, s.sequence}, at::kBool).tril().logical_not();
  at::Tensor x = at::embedding(p.at("token_embedding.weight"), tokens);
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string prefix = "layer." + std::to_string(layer) + ".";
    const at::Tensor qkv = linear(norm(x, prefix + "attention_norm"), prefix + "qkv")
                               .view({item.batch, s.sequence, s.kv_heads, members + 2, head});
    const auto heads = [&](std::int64_t first, std::int64_t count) {
      return qkv.narrow(3, first, count)
          .reshape({item.batch, s.sequence, s.kv_heads * count, head})
          .transpose(1, 2);
    };
    const at::Tensor query = rotated(heads(0, members));
    const at::Tensor key = rotated(heads(members, 1)).repeat_interleave(members, 1);
    const at::Tensor value = heads(members + 1, 1).repeat_interleave(members, 1);
    const at::Tensor scores =
        at::matmul(query, key.transpose(-1, -2)) / std::sqrt(static_cast<double>(head));
    const at::Tensor weights = at::softmax(scores.masked_fill(mask, -INFINITY), -1);
    const at::Tensor attended =
        at::matmul(weights, value).transpose(1, 2).reshape({item.batch, s.sequence, s.hidden});
    x = x + linear(attended, prefix + "projection");
    const at::Tensor both = linear(norm(x, prefix + "feed_forward_norm"), prefix + "gate_up");
    const at::Tensor gate = both.narrow(-1, 0, s.inner);
    x = x + linear(gate * at::sigmoid(gate) * both.narrow(-1, s.inner, s.inner), prefix + "down");
  }
  const std::string head_name = s.tied_embeddings ? "token_embedding" : "head";
  const at::Tensor logits = linear(norm(x, "final_norm"), head_name);
  const at::Tensor loss =
      at::cross_entropy_loss(logits.reshape({-1, s.vocabulary}), targets.reshape({-1}));
  const auto gradients = torch::autograd::grad({loss}, leaves);
  ModelRun result;
  result.loss = loss.item<double>();
  std::size_t next = 0;
  for (const auto& [name, value] : parameters) result.gradients[name] = gradients[next++];
  return result;
}

void check_case(const LlamaCase& item, Precision precision, double tolerance) {
  SCOPED_TRACE(describe(item) + " " + precision_name(precision));
  Declaration declaration;
  declaration.precision = precision;
  const Model model = make_llama(item.sizes, item.batch, declaration);
  at::manual_seed(23);
  const at::Tensor tokens =
      at::randint(item.sizes.vocabulary, {item.batch, item.sizes.sequence}, at::kLong);
  const at::Tensor targets =
      at::randint(item.sizes.vocabulary, {item.batch, item.sizes.sequence}, at::kLong);
  const Named parameters = random_parameters(model);
  const ModelRun wanted = reference(item, parameters, tokens, targets);
  const ModelRun got =
      test::run_model(model, precision, parameters, {{"tokens", tokens}, {"targets", targets}}, 1.0,
                      /*records_apart=*/true, {3, 5, 100, Products()});
  EXPECT_NEAR(got.loss, wanted.loss, tolerance * wanted.loss);
  ASSERT_EQ(got.gradients.size(), wanted.gradients.size());
  for (const auto& [name, gradient] : wanted.gradients)
    EXPECT_LT(relative_error(got.gradients.at(name), gradient), tolerance) << name;
}

TEST(Llama, GradientsAndLossInFloat64) {
  for (const auto& item : llama_cases()) check_case(item, Precision::Float64, 1e-11);
}

TEST(Llama, GradientsAndLossInFloat32) {
  for (const auto& item : llama_cases()) check_case(item, Precision::Float32, 1e-5);
}

TEST(Llama, GradientsAndLossInBFloat16) {
  for (const auto& item : llama_cases()) check_case(item, Precision::BFloat16, 6e-2);
}

TEST(Llama, DeclaredBytesAreTheMeasuredOnes) {
  for (const int threads : {1, 2}) {
    for (const Precision precision :
         {Precision::Float32, Precision::Float64, Precision::BFloat16}) {
      for (const auto& item : llama_cases()) {
        SCOPED_TRACE(describe(item) + " " + precision_name(precision));
        test::use_threads(threads);
        Declaration declaration;
        declaration.precision = precision;
        declaration.threads = threads;
        const Model model = make_llama(item.sizes, item.batch, declaration);
        plan::CostTable table;
        exec::profile_model(Queue(), model, declaration, table, [](int, int) {});
        for (const auto& node : model.graph.nodes) {
          SCOPED_TRACE(node.name);
          // Workspaces of products and of what multiplies in bfloat16 are declared as bounds.
          const bool bound = node.kind == "linear" || node.kind == "loss_head" ||
                             (node.kind == "grouped_attention" && precision == Precision::BFloat16);
          test::expect_declared_bytes(table.rows.at(node.cost_key), model, declaration, node,
                                      bound);
        }
        test::use_threads(2);
      }
    }
  }
}

TEST(Llama, ParametersAndBoxes) {
  const LlamaSizes sizes = sizes_of(2, 24, 6, 2, 20, 9, 16, false);
  const Model model = make_llama(sizes, 2, Declaration());
  // Six matrices and vectors a layer, the table, the final norm, the head.
  EXPECT_EQ(model.graph.parameters.size(), 2 * 6 + 3U);
  EXPECT_EQ(model.graph.parameter_elements(),
            2 * 16 * 24 + 24 + 2 * (2 * 24 + 24 * (24 + 2 * 2 * 4) + 24 * 24 + 3 * 24 * 20));
  // Of the second of two tensor ranks: the second group, and the second half of gates and of ups.
  const Model half = make_llama(sizes, 2, Declaration(), {1, 2, false});
  for (std::size_t k = 0; k < half.graph.parameters.size(); ++k) {
    const auto& parameter = half.graph.parameters[k];
    const Box& box = half.boxes[k];
    EXPECT_EQ(box.elements(), parameter.elements) << parameter.name;
    if (parameter.name == "layer.1.qkv.weight") {
      EXPECT_EQ(box.global, (std::vector<std::int64_t>{2, 5, 4, 24}));
      EXPECT_EQ(box.offset, (std::vector<std::int64_t>{1, 0, 0, 0}));
    }
    if (parameter.name == "layer.1.gate_up.weight") {
      EXPECT_EQ(box.global, (std::vector<std::int64_t>{2, 20, 24}));
      EXPECT_EQ(box.offset, (std::vector<std::int64_t>{0, 10, 0}));
    }
  }
}

TEST(Llama, SizesThatDoNotFit) {
  const auto key_of = [](const LlamaSizes& sizes, const TransformerPart& part) {
    try {
      make_llama(sizes, 1, Declaration(), part);
      return std::string();
    } catch (const ConfigError& error) {
      return error.key();
    }
  };
  EXPECT_EQ(key_of(sizes_of(1, 24, 4, 2, 6, 4, 5, false), {}), "");
  EXPECT_EQ(key_of(sizes_of(1, 10, 3, 3, 6, 4, 5, false), {}), "model.heads");
  EXPECT_EQ(key_of(sizes_of(1, 12, 4, 4, 6, 4, 5, false), {}), "model.heads");  // heads of three
  EXPECT_EQ(key_of(sizes_of(1, 24, 4, 3, 6, 4, 5, false), {}), "model.kv_heads");
  EXPECT_EQ(key_of(sizes_of(1, 24, 4, 2, 6, 4, 0, false), {}), "model.vocabulary");
  EXPECT_EQ(key_of(sizes_of(1, 24, 4, 2, 6, 4, 5, false), {0, 4, false}), "grid.tensor");
  EXPECT_EQ(key_of(sizes_of(1, 24, 4, 2, 7, 4, 5, false), {0, 2, false}), "grid.tensor");
}

}  // namespace
}  // namespace garonne::nn
