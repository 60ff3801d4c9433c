// Generators of text: what they give for a pass of one position, with keys and values kept, is what
// they give for a pass over the whole text, and that is what the trained model gives.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "nn/decoding.hpp"
#include "nn/element_type.hpp"
#include "nn/gpt/gpt.hpp"
#include "nn/gpt/llama.hpp"
#include "nn/node_runner.hpp"

namespace garonne::nn {
namespace {

using test::Named;
using test::random_parameters;
using test::relative_error;

constexpr std::int64_t sequence = 11;
constexpr std::int64_t vocabulary = 19;

struct Kind {
  std::string name;
  std::function<Model(const Declaration&)> trained;  // of one sample
  std::function<Model(const Declaration&, const GeneratorRows&)> generator;
};

std::vector<Kind> kinds() {
  std::vector<Kind> result;
  for (const double attention_dropout : {0.0, 0.2}) {
    const GptSizes gpt{2, 24, 3, sequence, vocabulary, 0.1, attention_dropout};
    result.push_back({attention_dropout > 0 ? "gpt with dropout of attention" : "gpt",
                      [=](const Declaration& declaration) { return make_gpt(gpt, 1, declaration); },
                      [=](const Declaration& declaration, const GeneratorRows& rows) {
                        return make_gpt_generator(gpt, declaration, rows);
                      }});
  }
  for (const std::int64_t kv_heads : {1, 2, 4}) {
    LlamaSizes llama;
    llama.layers = 2;
    llama.hidden = 24;
    llama.heads = 4;
    llama.kv_heads = kv_heads;
    llama.inner = 20;
    llama.sequence = sequence;
    llama.vocabulary = vocabulary;
    llama.tied_embeddings = kv_heads == 2;
    result.push_back(
        {"llama of " + std::to_string(kv_heads) + " heads of keys",
         [=](const Declaration& declaration) { return make_llama(llama, 1, declaration); },
         [=](const Declaration& declaration, const GeneratorRows& rows) {
           return make_llama_generator(llama, declaration, rows);
         }});
  }
  return result;
}

// All values of a model that has loaded these.
std::vector<at::Tensor> values_of(const Model& model, Precision precision, const Named& parameters,
                                  const Named& loaded) {
  const at::NoGradGuard no_gradients;
  const Products products;
  const std::int64_t sample = 0;
  Context context;
  context.precision = precision;
  context.training = false;
  context.products = &products;
  context.samples = &sample;
  context.batch = 1;
  std::vector<at::Tensor> values(model.graph.values.size());
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (model.graph.values[v].loaded) values[v] = loaded.at(model.graph.values[v].name);
  }
  for (std::size_t n = 0; n < model.nodes.size(); ++n) {
    const auto& spec = model.graph.nodes[n];
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> used;
    for (const int i : spec.inputs) inputs.push_back(values[static_cast<std::size_t>(i)]);
    for (const int i : spec.parameters) {
      used.push_back(parameters.at(model.graph.parameters[static_cast<std::size_t>(i)].name)
                         .to(compute_scalar_type(precision)));
    }
    const auto output = static_cast<std::size_t>(spec.output);
    values[output] = model.nodes[n]->forward(context, inputs, used, nullptr);
    EXPECT_EQ(values[output].sizes().vec(), model.graph.values[output].shape) << spec.name;
    EXPECT_EQ(values[output].storage().nbytes(), values[output].nbytes()) << spec.name;
  }
  return values;
}

at::Tensor logits_of(const Model& model, Precision precision, const Named& parameters,
                     const at::Tensor& tokens) {
  return values_of(model, precision, parameters, {{"tokens", tokens}}).back().to(at::kDouble);
}

void bring_kept(Precision precision, Decoding& decoding) {
  for (auto& [name, kept] : decoding.kept)
    // What nobody wrote would be seen.
    kept.tensor = at::full(kept.shape, std::nan(""),
                           at::TensorOptions().dtype(compute_scalar_type(precision)));
}

TEST(Generator, GivesTheLogitsOfTheLoss) {
  at::manual_seed(5);
  const at::Tensor tokens = at::randint(vocabulary, {sequence}, at::kLong);
  const at::Tensor targets = at::randint(vocabulary, {sequence}, at::kLong);
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    Declaration declaration;
    declaration.precision = Precision::Float64;
    const Model trained = kind.trained(declaration);
    const auto decoding = std::make_shared<Decoding>();
    const Model generator = kind.generator(declaration, {sequence, 0, decoding});
    EXPECT_TRUE(decoding->kept.empty());
    ASSERT_EQ(trained.graph.parameters.size(), generator.graph.parameters.size());
    EXPECT_EQ(trained.graph.blocks(), generator.graph.blocks());
    const Named parameters = random_parameters(trained, 23);
    const double wanted = values_of(trained, Precision::Float64, parameters,
                                    {{"tokens", tokens}, {"targets", targets}})
                              .back()
                              .item<double>();
    std::vector<at::Tensor> rows;
    for (decoding->asked = 0; decoding->asked < sequence; ++decoding->asked)
      rows.push_back(logits_of(generator, Precision::Float64, parameters, tokens));
    const double loss = at::cross_entropy_loss(at::cat(rows), targets).item<double>();
    EXPECT_NEAR(loss, wanted, 1e-12 * wanted);
  }
}

TEST(Generator, GoesOnFromWhatItKept) {
  at::manual_seed(6);
  const at::Tensor tokens = at::randint(vocabulary, {sequence}, at::kLong);
  for (const Kind& kind : kinds()) {
    for (const auto& [precision, tolerance] :
         {std::pair{Precision::Float64, 1e-13}, std::pair{Precision::Float32, 1e-5},
          std::pair{Precision::BFloat16, 0.05}}) {
      for (const std::int64_t prompt : {std::int64_t{1}, std::int64_t{4}, sequence - 1}) {
        SCOPED_TRACE(kind.name + " " + precision_name(precision) + " after " +
                     std::to_string(prompt));
        Declaration declaration;
        declaration.precision = precision;
        const auto whole = std::make_shared<Decoding>();
        const auto kept = std::make_shared<Decoding>();
        const Model of_all = kind.generator(declaration, {sequence, 0, whole});
        const Model first = kind.generator(declaration, {prompt, sequence, kept});
        const Model next = kind.generator(declaration, {1, sequence, kept});
        EXPECT_EQ(kept->kept.size(), 2U);
        bring_kept(precision, *kept);
        const Named parameters = random_parameters(of_all, 23);
        const auto expect_same = [&](const at::Tensor& mine) {
          const at::Tensor wanted = logits_of(of_all, precision, parameters, tokens);
          EXPECT_LE(relative_error(mine, wanted), tolerance) << "at position " << whole->asked;
          // Positions tell: those of the row before are others.
          if (whole->asked == 0) return;
          --whole->asked;
          EXPECT_GT(relative_error(mine, logits_of(of_all, precision, parameters, tokens)), 0.1);
          ++whole->asked;
        };
        // Twice, as for two continuations: what is behind the prompt is written over.
        for (int round = 0; round < 2; ++round) {
          kept->first = 0;
          kept->asked = whole->asked = prompt - 1;
          expect_same(
              logits_of(first, precision, parameters, tokens.narrow(0, 0, prompt).contiguous()));
          kept->asked = 0;
          for (std::int64_t at = prompt; at < sequence; ++at) {
            kept->first = whole->asked = at;
            expect_same(
                logits_of(next, precision, parameters, tokens.narrow(0, at, 1).contiguous()));
          }
        }
        kept->first = sequence;
        EXPECT_THROW(logits_of(next, precision, parameters, tokens.narrow(0, 0, 1).contiguous()),
                     InternalError);
      }
    }
  }
}

}  // namespace
}  // namespace garonne::nn
