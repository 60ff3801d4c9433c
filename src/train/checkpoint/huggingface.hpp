// Export to Hugging Face's formats: config.json and model.safetensors with its names and layouts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.hpp"
#include "train/checkpoint/trained_model.hpp"

namespace garonne::train {

struct ExportedFiles {
  std::string left_out;              // what the exported tokenizer.json is without
                                     // (data::TokenizerFile)
  std::vector<std::string> removed;  // files of another tokenizer, of an earlier export
};

// GPT as GPT2LMHeadModel, Llama as LlamaForCausalLM. Writes both files into `directory`, which is
// made when missing, and beside them the tokenizer, where there is one, and a
// generation_config.json, so that AutoTokenizer and generate() of transformers work. Weights in
// float32 (float64 for a float64 run), one after the other: no more than one of ours and what it is
// there are in memory. Files of a tokenizer that an earlier export into `directory` wrote are
// removed or replaced where they are still as it wrote them; others stay, beside an export without
// a tokenizer. Throws IoError, and ConfigError for a kind of model that has no form there, and
// where files in `directory` that no export wrote would be replaced or taken for the tokenizer.
ExportedFiles export_huggingface(const StoredModel& model, const data::Tokenizer* tokenizer,
                                 const std::string& directory);

}  // namespace garonne::train
