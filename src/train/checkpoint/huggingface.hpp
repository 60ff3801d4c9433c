// Export to Hugging Face's GPT-2: config.json and model.safetensors with its names and layouts.
#pragma once

#include <string>

#include "exec/model_state.hpp"
#include "nn/gpt/gpt.hpp"

namespace garonne::train {

// Writes both files into `directory`, which is made when missing. Weights in float32 (float64 for a
// float64 run). Throws IoError.
void export_huggingface(const nn::GptSizes& sizes, const nn::Model& model,
                        const exec::ModelState& state, const std::string& directory);

}  // namespace garonne::train
