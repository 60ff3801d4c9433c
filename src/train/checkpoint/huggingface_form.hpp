// Kinds of models as Hugging Face has them. Private to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/json_input.hpp"

namespace garonne::train {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// One kind of model, of certain sizes.
struct HuggingFaceForm {
  // In words: "a GPT-2".
  std::string noun;
  // config.json, but for the type of the weights.
  nlohmann::ordered_json config;
  // What there is for the parameter `name` of ours: one tensor, or several that it is cut into. The
  // tensor has the shape of the model; what comes back is contiguous.
  std::function<std::vector<NamedTensor>(const std::string& name, const at::Tensor& tensor)>
      tensors;
  // The parameter from these tensors, in their order; of its elements, in any shape.
  std::function<at::Tensor(const std::string& name, const std::vector<at::Tensor>& tensors)>
      parameter;
  // Begins all names but the head's; files of a model without its head lack it.
  std::string prefix;
  // A head that is the table of tokens may be in a file all the same.
  std::string table;
  std::string head;
  bool tied = true;
  // Ends of names of what is in files and is no weight, as masks.
  std::vector<std::string> passed_over;
};

HuggingFaceForm gpt2_form(const RunConfig::Model& keys, std::int64_t vocabulary);
HuggingFaceForm llama_form(const RunConfig::Model& keys, std::int64_t vocabulary);
// By model.kind. ConfigError (--to) for a kind that has no form there.
HuggingFaceForm huggingface_form(const RunConfig::Model& keys, std::int64_t vocabulary);

// The keys of [model] from a config.json of their kind. ConfigError naming the key for what
// computes something else.
RunConfig::Model gpt2_keys(const JsonPlace& config);
// `is_mistral`: its keys have other defaults.
RunConfig::Model llama_keys(const JsonPlace& config, bool is_mistral);

// Of config.json: a key that is not there or null is at its default.
bool is_default(const JsonPlace& config, const char* key);
// Refuses another value than this.
void expect_truth(const JsonPlace& config, const char* key, bool value);

inline constexpr std::int64_t most_huggingface_size = std::int64_t{1} << 31;

}  // namespace garonne::train
