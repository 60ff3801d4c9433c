// What kinds of models that learn from tokens do alike. Private to this folder.
#pragma once

#include <cstdint>
#include <functional>

#include "base/config.hpp"
#include "nn/gpt/transformer_part.hpp"
#include "nn/model.hpp"
#include "nn/model_kind.hpp"

namespace garonne::nn {

// The model's, which has at least the tokens of the data. Throws ConfigError (model.vocabulary).
std::int64_t whole_vocabulary(const RunConfig::Model& keys, std::int64_t vocabulary);

// Throws ConfigError for keys that mean nothing for the kind, or nothing for tokens.
void check_text_keys(const ModelRequest& request);

TransformerPart part_of(const ModelRequest& request);

// A model of loaded tokens and targets, int64 [batch, sequence], that `write` ends in a loss.
Model make_text_model(
    const Declaration& declaration, std::int64_t batch, std::int64_t sequence,
    const std::function<void(ModelBuilder& builder, int tokens, int targets)>& write);

// One of the loaded tokens of a pass, whose last node makes logits.
Model make_text_generator(const Declaration& declaration, const GeneratorRows& rows,
                          const std::function<void(ModelBuilder& builder, int tokens)>& write);

}  // namespace garonne::nn
