// Llama as nodes: the mathematics of Hugging Face's LlamaForCausalLM (RMS norms, rotary positions,
// SwiGLU, grouped queries, no biases).
#pragma once

#include <cstdint>

#include "base/config.hpp"
#include "nn/decoding.hpp"
#include "nn/gpt/transformer_part.hpp"
#include "nn/model.hpp"

namespace garonne::nn {

struct LlamaSizes {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // of keys and values; divides heads
  std::int64_t inner = 0;     // width of the gated unit
  std::int64_t sequence = 0;
  std::int64_t vocabulary = 0;
  double rope_theta = 10000;
  double norm_epsilon = 1e-5;
  bool tied_embeddings = false;  // the head's weights are the token table

  std::int64_t head_size() const { return hidden / heads; }
  std::int64_t members() const { return heads / kv_heads; }  // queries that share keys and values
};

// Of a run on data with so many tokens. Throws ConfigError (model.vocabulary) where the model has
// fewer.
LlamaSizes llama_sizes(const RunConfig::Model& keys, std::int64_t vocabulary);

// Throws ConfigError for sizes that do not fit together.
void check_llama_sizes(const LlamaSizes& sizes);

// For micro-batches of `batch` samples. Loaded values as those of make_gpt. Stored shapes: qkv
// [kv_heads, heads / kv_heads + 2, head size, hidden], of each group queries, keys, values; gate_up
// [2, inner, hidden]. Throws ConfigError (grid.tensor, grid.sequence_parallel) for a cut that the
// sizes do not allow: kv_heads and inner are cut.
Model make_llama(const LlamaSizes& sizes, std::int64_t batch, const Declaration& declaration,
                 const TransformerPart& part = {});

// The same parameters; ends in the logits of one row of one sample, on every tensor rank: the first
// `vocabulary` elements of the last value. Loaded value: 0 = tokens [rows.count].
Model make_llama_generator(const LlamaSizes& sizes, const Declaration& declaration,
                           const GeneratorRows& rows, const TransformerPart& part = {});

}  // namespace garonne::nn
