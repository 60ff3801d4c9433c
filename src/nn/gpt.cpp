#include "nn/gpt.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "nn/layers.hpp"

namespace garonne::nn {
namespace {

constexpr double norm_epsilon = 1e-5;
constexpr double deviation = 0.02;  // GPT-2's

struct Tables {
  int token;
  int position;
};

// Embeddings, blocks and final norm; returns the value that the head reads.
int add_body(ModelBuilder& builder, const GptSizes& sizes, Rows rows, int tokens, Tables& tables) {
  const std::int64_t hidden = sizes.hidden;
  const std::int64_t elements = rows.count() * hidden;
  // Two additions into the residual a layer: their weights start smaller by the root of how many
  // there are.
  const double residual_deviation = deviation / std::sqrt(2.0 * static_cast<double>(sizes.layers));
  const auto norm = [&](const std::string& name, int x) {
    const int gain = builder.add_parameter(name + ".weight", {hidden}, {0, 1});
    const int bias = builder.add_parameter(name + ".bias", {hidden}, {0, 0});
    return builder.add_node(name, make_layer_norm(rows, hidden, norm_epsilon), {x}, {gain, bias},
                            elements);
  };
  const auto linear = [&](const std::string& name, int x, std::int64_t inputs, std::int64_t outputs,
                          double spread, const std::vector<std::int64_t>& stored_outputs) {
    std::vector<std::int64_t> stored = stored_outputs;
    if (!stored.empty()) stored.push_back(inputs);
    const int weight =
        builder.add_parameter(name + ".weight", {outputs, inputs}, {spread, 0}, stored);
    const int bias = builder.add_parameter(name + ".bias", {outputs}, {0, 0}, stored_outputs);
    return builder.add_node(name, make_linear(rows, inputs, outputs), {x}, {weight, bias},
                            rows.count() * outputs);
  };

  tables.token =
      builder.add_parameter("token_embedding.weight", {sizes.vocabulary, hidden}, {deviation, 0});
  tables.position =
      builder.add_parameter("position_embedding.weight", {sizes.sequence, hidden}, {deviation, 0});
  int x = builder.add_node(
      "embedding",
      make_embedding("embedding", rows, hidden, sizes.vocabulary, sizes.sequence, sizes.dropout),
      {tokens}, {tables.token, tables.position}, elements);
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    builder.next_block();
    const std::string prefix = fmt::format("layer.{}.", layer);
    const std::int64_t head_size = hidden / sizes.heads;
    const int normed = norm(prefix + "attention_norm", x);
    const int qkv =
        linear(prefix + "qkv", normed, hidden, 3 * hidden, deviation, {3, sizes.heads, head_size});
    const int attended = builder.add_node(
        prefix + "attention", make_attention(rows, sizes.heads, head_size), {qkv}, {}, elements);
    const int projected =
        linear(prefix + "projection", attended, hidden, hidden, residual_deviation, {});
    const std::string attention_residual = prefix + "attention_residual";
    const int middle = builder.add_node(
        attention_residual, make_dropout_add(attention_residual, rows, hidden, sizes.dropout),
        {x, projected}, {}, elements);
    const int normed_again = norm(prefix + "feed_forward_norm", middle);
    const int up = linear(prefix + "up", normed_again, hidden, 4 * hidden, deviation, {});
    const int activated =
        builder.add_node(prefix + "gelu", make_gelu(rows, 4 * hidden), {up}, {}, 4 * elements);
    const int down = linear(prefix + "down", activated, 4 * hidden, hidden, residual_deviation, {});
    const std::string feed_forward_residual = prefix + "feed_forward_residual";
    x = builder.add_node(feed_forward_residual,
                         make_dropout_add(feed_forward_residual, rows, hidden, sizes.dropout),
                         {middle, down}, {}, elements);
  }
  builder.next_block();
  return norm("final_norm", x);
}

}  // namespace

void check_gpt_sizes(const GptSizes& sizes) {
  if (sizes.hidden % sizes.heads != 0) {
    throw ConfigError("model.heads", fmt::format("{}", sizes.heads),
                      fmt::format("must divide model.hidden = {}", sizes.hidden));
  }
  if (sizes.vocabulary < 1) throw ConfigError("model.vocabulary", "", "must be at least 1");
}

Model make_gpt(const GptSizes& sizes, std::int64_t batch, const Declaration& declaration) {
  check_gpt_sizes(sizes);
  ModelBuilder builder(declaration);
  const Rows rows{batch, sizes.sequence};
  const int tokens = builder.add_input("tokens", rows.count());
  const int targets = builder.add_input("targets", rows.count());
  Tables tables{};
  const int x = add_body(builder, sizes, rows, tokens, tables);
  builder.add_loss("loss", make_loss_head(rows, sizes.hidden, sizes.vocabulary), {x, targets},
                   {tables.token});
  Model model = builder.take();
  model.batch = batch;
  model.sequence = sizes.sequence;
  return model;
}

Model make_gpt_generator(const GptSizes& sizes, const Declaration& declaration) {
  check_gpt_sizes(sizes);
  ModelBuilder builder(declaration);
  const Rows rows{1, sizes.sequence};
  const int tokens = builder.add_input("tokens", rows.count());
  Tables tables{};
  const int x = add_body(builder, sizes, rows, tokens, tables);
  builder.add_node("logits", make_logits_head(rows, sizes.hidden, sizes.vocabulary), {x},
                   {tables.token}, rows.count() * sizes.vocabulary);
  Model model = builder.take();
  model.batch = 1;
  model.sequence = sizes.sequence;
  return model;
}

}  // namespace garonne::nn
