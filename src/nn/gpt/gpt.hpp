// GPT-2 as nodes: the mathematics of Hugging Face's GPT2LMHeadModel with activation gelu_new.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "nn/decoding.hpp"
#include "nn/gpt/transformer_part.hpp"
#include "nn/model.hpp"

namespace garonne::nn {

struct GptSizes {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t sequence = 0;  // also the number of positions
  std::int64_t vocabulary = 0;
  double dropout = 0;            // of embeddings and of what is added to the residual stream
  double attention_dropout = 0;  // of the weights of attention; in training only
};

// Of a run on data with so many tokens. Throws ConfigError (model.vocabulary) where the model has
// fewer.
GptSizes gpt_sizes(const RunConfig::Model& keys, std::int64_t vocabulary);

// Throws ConfigError for sizes that do not fit together.
void check_gpt_sizes(const GptSizes& sizes);

using GptPart = TransformerPart;

// Throws ConfigError (grid.tensor, grid.sequence_parallel) for a cut that the sizes do not allow.
// A vocabulary that does not divide is padded.
void check_gpt_part(const GptSizes& sizes, std::int64_t batch, const GptPart& part);

// For micro-batches of `batch` samples. Loaded values: 0 = tokens, 1 = targets, int64 [batch,
// sequence].
// The graph is equal on all tensor ranks; weights are cut by columns, rows, heads and vocabulary.
Model make_gpt(const GptSizes& sizes, std::int64_t batch, const Declaration& declaration,
               const GptPart& part = {});

// The same parameters; ends in the logits of one row of one sample, on every tensor rank: the first
// `vocabulary` elements of the last value. Loaded value: 0 = tokens [rows.count].
Model make_gpt_generator(const GptSizes& sizes, const Declaration& declaration,
                         const GeneratorRows& rows, const GptPart& part = {});

}  // namespace garonne::nn
