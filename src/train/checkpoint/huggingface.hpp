// Export to Hugging Face's formats: config.json and model.safetensors with its names and layouts.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "exec/model_state.hpp"
#include "nn/model.hpp"

namespace garonne::train {

// GPT as GPT2LMHeadModel, Llama as LlamaForCausalLM. Writes both files into `directory`, which is
// made when missing, and beside them the tokenizer, where there is one, and a
// generation_config.json, so that AutoTokenizer and generate() of transformers work. Weights in
// float32 (float64 for a float64 run). `vocabulary`: of the data. Throws IoError, and ConfigError
// for a kind of model that has no form there.
void export_huggingface(const RunConfig::Model& keys, std::int64_t vocabulary,
                        const nn::Model& model, const exec::ModelState& state,
                        const data::Tokenizer* tokenizer, const std::string& directory);

}  // namespace garonne::train
