#include "nn/gpt/llama.hpp"

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "nn/gpt/text_model.hpp"
#include "nn/gpt/transformer_writer.hpp"
#include "nn/layers/layers.hpp"
#include "nn/model_kind.hpp"

namespace garonne::nn {
namespace {

TransformerSizes shared_sizes(const LlamaSizes& sizes, const GeneratorRows& generator) {
  return {.layers = sizes.layers,
          .hidden = sizes.hidden,
          .sequence = sizes.sequence,
          .vocabulary = sizes.vocabulary,
          .biases = false,
          .dropout = 0,
          .generator = generator};
}

// Adds the nodes of one rank's part.
class LlamaWriter : public TransformerWriter {
 public:
  LlamaWriter(ModelBuilder& builder, const LlamaSizes& sizes, std::int64_t batch,
              const TransformerPart& part, const GeneratorRows& generator = {})
      : TransformerWriter(builder, shared_sizes(sizes, generator), batch, part), llama_(sizes) {}

  // Embedding, blocks and final norm; returns the value that the head reads.
  int body(int tokens) {
    token_table_ = add_vocabulary_table("token_embedding.weight");
    int x = token_rows(tokens, token_table_);
    for (std::int64_t number = 0; number < llama_.layers; ++number) {
      builder_.next_block();
      x = layer(number, x);
    }
    builder_.next_block();
    return norm("final_norm", x);
  }

  // The table of the head.
  int head() { return llama_.tied_embeddings ? token_table_ : add_vocabulary_table("head.weight"); }
  using TransformerWriter::logits;
  using TransformerWriter::loss;

 private:
  int norm(const std::string& name, int x) {
    const int gain = add_replicated(name + ".weight", {sizes_.hidden}, {0, 1});
    return builder_.add_node(name, make_rms_norm(stream_rows_, sizes_.hidden, llama_.norm_epsilon),
                             {x}, {gain}, stream_shape());
  }

  int layer(std::int64_t number, int x) {
    const std::string prefix = fmt::format("layer.{}.", number);
    const std::int64_t head_size = llama_.head_size();
    const std::int64_t members = llama_.members();
    const std::int64_t groups = llama_.kv_heads / ranks_;
    const std::int64_t inner = llama_.inner / ranks_;
    const std::int64_t width = groups * (members + 2) * head_size;
    const int normed = enter(prefix + "attention_input", norm(prefix + "attention_norm", x));
    const int qkv = column_linear(prefix + "qkv", normed, width * ranks_,
                                  {llama_.kv_heads, members + 2, head_size}, 0);
    const int turned =
        builder_.add_node(prefix + "rotary",
                          make_rotary(rows_, sizes_.sequence, {groups, members + 1, 1, head_size},
                                      llama_.rope_theta, sizes_.generator.decoding),
                          {qkv}, {}, {rows_.count(), width});
    const int attended = attention(prefix + "attention", turned,
                                   {.groups = groups, .members = members, .head_size = head_size},
                                   make_grouped_attention(rows_, groups, members, head_size));
    const int projected = row_linear(prefix + "projection", attended, llama_.heads * head_size);
    const int middle = residual(prefix + "attention_residual", x, projected);
    const int normed_again =
        enter(prefix + "feed_forward_input", norm(prefix + "feed_forward_norm", middle));
    const int gate_up =
        column_linear(prefix + "gate_up", normed_again, 2 * llama_.inner, {2, llama_.inner}, 1);
    const int activated = builder_.add_node(prefix + "swiglu", make_swiglu(rows_, inner), {gate_up},
                                            {}, {rows_.count(), inner});
    const int down = row_linear(prefix + "down", activated, llama_.inner);
    return residual(prefix + "feed_forward_residual", middle, down);
  }

  LlamaSizes llama_;
  int token_table_ = -1;
};

}  // namespace

LlamaSizes llama_sizes(const RunConfig::Model& keys, std::int64_t vocabulary) {
  LlamaSizes sizes;
  sizes.layers = keys.layers;
  sizes.hidden = keys.hidden;
  sizes.heads = keys.heads;
  sizes.kv_heads = keys.kv_heads > 0 ? keys.kv_heads : keys.heads;
  // Two thirds of four times the width, so that three matrices have the weights of GPT's two.
  sizes.inner = keys.inner > 0 ? keys.inner : round_up(8 * keys.hidden / 3, 64);
  sizes.sequence = keys.sequence;
  sizes.vocabulary = whole_vocabulary(keys, vocabulary);
  sizes.rope_theta = keys.rope_theta;
  sizes.norm_epsilon = keys.norm_epsilon;
  sizes.tied_embeddings = keys.tied_embeddings;
  return sizes;
}

void check_llama_sizes(const LlamaSizes& sizes) {
  if (sizes.hidden % sizes.heads != 0 || sizes.head_size() % 2 != 0) {
    throw ConfigError("model.heads", fmt::format("{}", sizes.heads),
                      fmt::format("must divide model.hidden = {} into heads of an even size, since "
                                  "rotary positions turn pairs of numbers",
                                  sizes.hidden));
  }
  if (sizes.heads % sizes.kv_heads != 0) {
    throw ConfigError("model.kv_heads", fmt::format("{}", sizes.kv_heads),
                      fmt::format("must divide model.heads = {}", sizes.heads));
  }
  if (sizes.vocabulary < 1) throw ConfigError("model.vocabulary", "", "must be at least 1");
}

namespace {

void check_llama_part(const LlamaSizes& sizes, std::int64_t batch, const TransformerPart& part) {
  check_tensor_divides("model.kv_heads", sizes.kv_heads, part.tensor_ranks);
  check_tensor_divides("model.inner", sizes.inner, part.tensor_ranks);
  check_sequence_cut(batch, sizes.sequence, part);
}

}  // namespace

Model make_llama(const LlamaSizes& sizes, std::int64_t batch, const Declaration& declaration,
                 const TransformerPart& part) {
  check_llama_sizes(sizes);
  check_llama_part(sizes, batch, part);
  return make_text_model(declaration, batch, sizes.sequence,
                         [&](ModelBuilder& builder, int tokens, int targets) {
                           LlamaWriter writer(builder, sizes, batch, part);
                           const int x = writer.body(tokens);
                           writer.loss(x, targets, writer.head());
                         });
}

Model make_llama_generator(const LlamaSizes& sizes, const Declaration& declaration,
                           const GeneratorRows& rows, const TransformerPart& part) {
  check_llama_sizes(sizes);
  check_llama_part(sizes, 1, part);
  return make_text_generator(declaration, rows, [&](ModelBuilder& builder, int tokens) {
    LlamaWriter writer(builder, sizes, 1, part, rows);
    const int x = writer.body(tokens);
    writer.logits(x, writer.head());
  });
}

namespace {

Model make_on_tokens(const ModelRequest& request) {
  check_text_keys(request);
  return make_llama(llama_sizes(request.config.model, request.vocabulary),
                    request.config.train.micro_batch, request.declaration, part_of(request));
}

Model make_generator(const ModelRequest& request, const GeneratorRows& rows) {
  return make_llama_generator(llama_sizes(request.config.model, request.vocabulary),
                              request.declaration, rows, part_of(request));
}

std::string describe_on_tokens(const ModelRequest& request) {
  const LlamaSizes sizes = llama_sizes(request.config.model, request.vocabulary);
  return fmt::format(
      "{}, hidden {}, {}, {} of keys and values, inner width {}, sequence {}, vocabulary {}{}",
      counted(sizes.layers, "layer"), sizes.hidden, counted(sizes.heads, "head"), sizes.kv_heads,
      sizes.inner, sizes.sequence, sizes.vocabulary,
      sizes.tied_embeddings ? ", tied embeddings" : "");
}

}  // namespace

ModelKind llama_kind() {
  return {.name = "llama",
          .keys = {"layers", "hidden", "heads", "kv_heads", "inner", "sequence", "vocabulary",
                   "rope_theta", "norm_epsilon", "tied_embeddings"},
          .learns_from = LearnsFrom::Tokens,
          .losses = {"cross-entropy"},
          .make = make_on_tokens,
          .describe = describe_on_tokens,
          .make_generator = make_generator};
}

}  // namespace garonne::nn
