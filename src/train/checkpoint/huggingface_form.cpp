#include "train/checkpoint/huggingface_form.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace garonne::train {

HuggingFaceForm huggingface_form(const RunConfig::Model& keys, std::int64_t vocabulary) {
  if (keys.kind == "gpt") return gpt2_form(keys, vocabulary);
  if (keys.kind == "llama") return llama_form(keys, vocabulary);
  throw ConfigError("--to", "huggingface", "has no form of model.kind = " + keys.kind);
}

bool is_default(const JsonPlace& config, const char* key) {
  return !config.has(key) || config.key(key).json().is_null();
}

void expect_truth(const JsonPlace& config, const char* key, bool value) {
  if (!is_default(config, key) && config.key(key).truth() != value)
    config.key(key).refuse(fmt::format("must be {}: nothing else is computed here", value));
}

}  // namespace garonne::train
