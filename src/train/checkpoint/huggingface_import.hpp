// Import of Hugging Face's GPT-2 and Llama: a folder with config.json and safetensors, in one file
// or several.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/config.hpp"
#include "exec/model_state.hpp"
#include "nn/model.hpp"
#include "train/workload/text_marks.hpp"

namespace garonne::train {

// The keys of [model] that config.json says. ConfigError (key of the file): another kind of model,
// or one that computes something else, as another activation, biases or scaled positions; IoError
// for a file that cannot be read.
RunConfig::Model huggingface_model_keys(const std::string& directory);

// Which tokens begin and end texts by config.json and, where it is there, generation_config.json:
// the first beginning that one says, and the ends of both. Ids outside of the vocabulary are left
// out, and `warn` is told. Errors as above.
TextMarks huggingface_marks(const std::string& directory, std::int64_t vocabulary,
                            const std::function<void(const std::string&)>& warn);

// Fills what the optimizer updates of the whole `model`, whose sizes are those keys, from the
// folder. Float32, float16, bfloat16 and float64 tensors are converted. Masks of attention, and a
// head that is the token embedding of a model that shares it, are passed over. IoError naming file
// and tensor: one is missing, has another shape or type, or is not known.
void import_huggingface(const std::string& directory, const RunConfig::Model& keys,
                        const nn::Model& model, const exec::ModelState& state);

}  // namespace garonne::train
