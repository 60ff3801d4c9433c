// A kind of model as Hugging Face has it. Private to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nn/gpt/gpt.hpp"
#include "nn/gpt/llama.hpp"

namespace garonne::train {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// What there is for the parameter `name` of ours: one tensor, or several that it is cut into. The
// tensor has the shape of the model; what comes back is contiguous.
std::vector<NamedTensor> gpt2_tensors(const std::string& name, const at::Tensor& tensor);
std::vector<NamedTensor> llama_tensors(const nn::LlamaSizes& sizes, const std::string& name,
                                       const at::Tensor& tensor);

// config.json, but for the type of the weights.
nlohmann::ordered_json gpt2_config(const nn::GptSizes& sizes);
nlohmann::ordered_json llama_config(const nn::LlamaSizes& sizes);

}  // namespace garonne::train
