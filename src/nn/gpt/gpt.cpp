#include "nn/gpt/gpt.hpp"

#include <fmt/format.h>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "nn/gpt/text_model.hpp"
#include "nn/gpt/transformer_writer.hpp"
#include "nn/layers/layers.hpp"
#include "nn/model_kind.hpp"

namespace garonne::nn {
namespace {

constexpr double gpt_norm_epsilon = 1e-5;

struct Tables {
  int token;
  int position;
};

TransformerSizes shared_sizes(const GptSizes& sizes, const GeneratorRows& generator) {
  return {.layers = sizes.layers,
          .hidden = sizes.hidden,
          .sequence = sizes.sequence,
          .vocabulary = sizes.vocabulary,
          .biases = true,
          .dropout = sizes.dropout,
          .generator = generator};
}

// Adds the nodes of one rank's part.
class GptWriter : public TransformerWriter {
 public:
  GptWriter(ModelBuilder& builder, const GptSizes& sizes, std::int64_t batch, const GptPart& part,
            const GeneratorRows& generator = {})
      : TransformerWriter(builder, shared_sizes(sizes, generator), batch, part),
        heads_(sizes.heads),
        attention_dropout_(generator.count > 0 ? 0 : sizes.attention_dropout) {}

  // Embeddings, blocks and final norm; returns the value that the head reads.
  int body(int tokens);
  void loss(int x, int targets) { TransformerWriter::loss(x, targets, tables_.token); }
  void logits(int x) { TransformerWriter::logits(x, tables_.token); }

 private:
  int norm(const std::string& name, int x) {
    const int gain = add_replicated(name + ".weight", {sizes_.hidden}, {0, 1});
    const int bias = add_replicated(name + ".bias", {sizes_.hidden}, {0, 0});
    return builder_.add_node(name, make_layer_norm(stream_rows_, sizes_.hidden, gpt_norm_epsilon),
                             {x}, {gain, bias}, stream_shape());
  }

  int embedding(int tokens);
  int layer(std::int64_t number, int x);

  std::int64_t heads_;
  double attention_dropout_;
  Tables tables_{};
};

int GptWriter::embedding(int tokens) {
  const std::int64_t hidden = sizes_.hidden;
  tables_.token = add_vocabulary_table("token_embedding.weight");
  tables_.position =
      add_replicated("position_embedding.weight", {sizes_.sequence, hidden}, {deviation, 0});
  if (!cut()) {
    return builder_.add_node(
        "embedding",
        make_embedding("embedding", rows_, hidden, sizes_.vocabulary, sizes_.sequence,
                       sizes_.dropout, sizes_.generator.decoding),
        {tokens}, {tables_.token, tables_.position}, shape());
  }
  const int rows = token_rows(tokens, tables_.token);
  // Named as where nothing is cut: the masks of dropout go by the name.
  return builder_.add_node(
      "embedding",
      make_position_embedding("embedding", stream_rows_, hidden, sizes_.sequence, sizes_.dropout,
                              sizes_.generator.decoding),
      {rows}, {tables_.position}, stream_shape());
}

int GptWriter::layer(std::int64_t number, int x) {
  const std::int64_t hidden = sizes_.hidden;
  const std::int64_t head_size = hidden / heads_;
  const std::int64_t heads = heads_ / ranks_;
  const std::int64_t inner = 4 * hidden / ranks_;
  const std::string prefix = fmt::format("layer.{}.", number);
  const int normed = enter(prefix + "attention_input", norm(prefix + "attention_norm", x));
  const int qkv = column_linear(prefix + "qkv", normed, 3 * hidden, {3, heads_, head_size}, 1);
  const std::string name = prefix + "attention";
  const int attended = attention(
      name, qkv, {.groups = heads, .members = 1, .head_size = head_size, .parts_first = true},
      make_attention(rows_, heads, head_size, {attention_dropout_, name, part_.tensor * heads}));
  const int projected = row_linear(prefix + "projection", attended, hidden);
  const int middle = residual(prefix + "attention_residual", x, projected);
  const int normed_again =
      enter(prefix + "feed_forward_input", norm(prefix + "feed_forward_norm", middle));
  const int up = column_linear(prefix + "up", normed_again, 4 * hidden, {4 * hidden}, 0);
  const int activated =
      builder_.add_node(prefix + "gelu", make_gelu(rows_, inner), {up}, {}, {rows_.count(), inner});
  const int down = row_linear(prefix + "down", activated, 4 * hidden);
  return residual(prefix + "feed_forward_residual", middle, down);
}

int GptWriter::body(int tokens) {
  int x = embedding(tokens);
  for (std::int64_t number = 0; number < sizes_.layers; ++number) {
    builder_.next_block();
    x = layer(number, x);
  }
  builder_.next_block();
  return norm("final_norm", x);
}

}  // namespace

GptSizes gpt_sizes(const RunConfig::Model& keys, std::int64_t vocabulary) {
  return {keys.layers,
          keys.hidden,
          keys.heads,
          keys.sequence,
          whole_vocabulary(keys, vocabulary),
          keys.dropout,
          keys.attention_dropout};
}

void check_gpt_sizes(const GptSizes& sizes) {
  if (sizes.hidden % sizes.heads != 0) {
    throw ConfigError("model.heads", fmt::format("{}", sizes.heads),
                      fmt::format("must divide model.hidden = {}", sizes.hidden));
  }
  if (sizes.vocabulary < 1) throw ConfigError("model.vocabulary", "", "must be at least 1");
}

void check_gpt_part(const GptSizes& sizes, std::int64_t batch, const GptPart& part) {
  check_tensor_divides("model.heads", sizes.heads, part.tensor_ranks);
  check_sequence_cut(batch, sizes.sequence, part);
}

Model make_gpt(const GptSizes& sizes, std::int64_t batch, const Declaration& declaration,
               const GptPart& part) {
  check_gpt_sizes(sizes);
  check_gpt_part(sizes, batch, part);
  return make_text_model(declaration, batch, sizes.sequence,
                         [&](ModelBuilder& builder, int tokens, int targets) {
                           GptWriter writer(builder, sizes, batch, part);
                           writer.loss(writer.body(tokens), targets);
                         });
}

Model make_gpt_generator(const GptSizes& sizes, const Declaration& declaration,
                         const GeneratorRows& rows, const GptPart& part) {
  check_gpt_sizes(sizes);
  check_gpt_part(sizes, 1, part);
  return make_text_generator(declaration, rows, [&](ModelBuilder& builder, int tokens) {
    GptWriter writer(builder, sizes, 1, part, rows);
    writer.logits(writer.body(tokens));
  });
}

namespace {

Model make_on_tokens(const ModelRequest& request) {
  check_text_keys(request);
  return make_gpt(gpt_sizes(request.config.model, request.vocabulary),
                  request.config.train.micro_batch, request.declaration, part_of(request));
}

Model make_generator(const ModelRequest& request, const GeneratorRows& rows) {
  return make_gpt_generator(gpt_sizes(request.config.model, request.vocabulary),
                            request.declaration, rows, part_of(request));
}

std::string describe_on_tokens(const ModelRequest& request) {
  const GptSizes sizes = gpt_sizes(request.config.model, request.vocabulary);
  return fmt::format("{}, hidden {}, {}, sequence {}, vocabulary {}",
                     counted(sizes.layers, "layer"), sizes.hidden, counted(sizes.heads, "head"),
                     sizes.sequence, sizes.vocabulary);
}

}  // namespace

ModelKind gpt_kind() {
  return {.name = "gpt",
          .keys = {"layers", "hidden", "heads", "sequence", "vocabulary", "dropout",
                   "attention_dropout"},
          .learns_from = LearnsFrom::Tokens,
          .losses = {"cross-entropy"},
          .make = make_on_tokens,
          .describe = describe_on_tokens,
          .make_generator = make_generator};
}

}  // namespace garonne::nn
