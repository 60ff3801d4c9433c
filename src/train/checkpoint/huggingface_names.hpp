// What Hugging Face's GPT-2 calls the parameters of ours.
#pragma once

#include <string>

namespace garonne::train {

struct HuggingFaceName {
  std::string name;
  bool transposed = false;  // Hugging Face keeps these as [inputs, outputs]
};

// Of a parameter of a gpt; InternalError for another.
HuggingFaceName huggingface_name(const std::string& name);

}  // namespace garonne::train
