#include "train/checkpoint/huggingface_import.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/printable.hpp"
#include "train/checkpoint/huggingface_names.hpp"
#include "train/checkpoint/safetensors.hpp"
#include "train/checkpoint/tensor_file.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 31;
constexpr const char* prefix = "transformer.";

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool is_null(const JsonPlace& root, const char* key) {
  return !root.has(key) || root.key(key).json().is_null();
}

void expect_truth(const JsonPlace& root, const char* key, bool value) {
  if (!is_null(root, key) && root.key(key).truth() != value)
    root.key(key).refuse(fmt::format("must be {}: nothing else is computed here", value));
}

// All safetensors of the folder, and which of them has a tensor.
class Tensors {
 public:
  explicit Tensors(const std::string& directory) {
    const std::string whole = directory + "/model.safetensors";
    const std::string index = whole + ".index.json";
    if (is_there(whole)) {
      open(whole);
    } else if (is_there(index)) {
      const nlohmann::json json = parse_json(read_text_file(index), index, FileOwner::Run);
      const JsonFile file(json, index, FileOwner::Run);
      std::set<std::string> names;
      for (const auto& [tensor, name] : file.root().key("weight_map").members()) {
        if (name.text().find('/') != std::string::npos) name.refuse("must be a name in the folder");
        names.insert(name.text());
      }
      for (const std::string& name : names) open(directory + "/" + name);
    } else {
      throw IoError(directory, "has neither model.safetensors nor model.safetensors.index.json");
    }
  }

  struct Place {
    std::string path;
    const SafetensorsFile* file = nullptr;
    const TensorEntry* entry = nullptr;
  };
  const std::map<std::string, Place>& places() const { return places_; }

 private:
  void open(const std::string& path) {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    for (const TensorEntry& entry : files_.back()->tensors()) {
      // The oldest files have names without it.
      const std::string name = entry.name.rfind(prefix, 0) == 0 || entry.name == "lm_head.weight"
                                   ? entry.name
                                   : prefix + entry.name;
      if (!places_.emplace(name, Place{path, files_.back().get(), &entry}).second)
        throw IoError(path, fmt::format("has the tensor {} again", printable(entry.name)));
    }
  }

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> places_;
};

at::Tensor read(const Tensors::Place& place) {
  return read_tensor(*place.file, place.path, *place.entry);
}

// Buffers of attention, which are no weights.
bool is_mask(const std::string& name) {
  const auto ends = [&](const std::string& end) {
    return name.size() >= end.size() &&
           name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  return ends(".attn.bias") || ends(".attn.masked_bias");
}

}  // namespace

RunConfig::Model huggingface_model_keys(const std::string& directory) {
  const std::string path = directory + "/config.json";
  const nlohmann::json json = parse_json(read_text_file(path), path);
  const JsonFile file(json, path);
  const JsonPlace root = file.root();
  root.expect_object();
  if (root.key("model_type").text() != "gpt2") root.key("model_type").refuse("known is gpt2");
  if (!is_null(root, "activation_function")) {
    const std::string activation = root.key("activation_function").text();
    if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
      root.key("activation_function").refuse("known are gelu_new and gelu_pytorch_tanh");
  }
  RunConfig::Model keys;
  keys.kind = "gpt";
  keys.layers = root.key("n_layer").integer(1, most);
  keys.hidden = root.key("n_embd").integer(1, most);
  keys.heads = root.key("n_head").integer(1, most);
  keys.sequence = root.key("n_positions").integer(1, most);
  keys.vocabulary = root.key("vocab_size").integer(1, most);
  keys.dropout = is_null(root, "resid_pdrop") ? 0.1 : root.key("resid_pdrop").number(0, 1);
  if (!is_null(root, "n_inner") && root.key("n_inner").integer() != 4 * keys.hidden)
    root.key("n_inner").refuse(fmt::format("must be four times n_embd, {}", 4 * keys.hidden));
  if (!is_null(root, "layer_norm_epsilon") &&
      std::abs(root.key("layer_norm_epsilon").number() - 1e-5) > 1e-12)
    root.key("layer_norm_epsilon").refuse("must be 1e-5");
  expect_truth(root, "tie_word_embeddings", true);
  expect_truth(root, "scale_attn_weights", true);
  expect_truth(root, "scale_attn_by_inverse_layer_idx", false);
  expect_truth(root, "add_cross_attention", false);
  return keys;
}

void import_huggingface(const std::string& directory, const nn::Model& model,
                        const exec::ModelState& state) {
  const Tensors tensors(directory);
  std::set<std::string> used = {"lm_head.weight"};
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const HuggingFaceName name = huggingface_name(model.graph.parameters[p].name);
    const auto found = tensors.places().find(name.name);
    if (found == tensors.places().end())
      throw IoError(directory, fmt::format("has no tensor {}", name.name));
    used.insert(name.name);
    const at::Tensor target = state.parameter(p).trained();
    const at::Tensor given = name.transposed ? read(found->second).t() : read(found->second);
    if (given.sizes() != target.sizes()) {
      throw IoError(
          found->second.path,
          fmt::format(
              "tensor {} has the shape [{}], and config.json makes it [{}]", name.name,
              fmt::join(found->second.entry->shape, ", "),
              fmt::join(name.transposed ? target.t().sizes().vec() : target.sizes().vec(), ", ")));
    }
    target.copy_(given);
  }
  for (const auto& [name, place] : tensors.places()) {
    if (!used.count(name) && !is_mask(name))
      throw IoError(place.path, fmt::format("has the tensor {}, which is none of a GPT-2",
                                            printable(place.entry->name)));
  }
  const auto head = tensors.places().find("lm_head.weight");
  const auto embedding = tensors.places().find("transformer.wte.weight");
  if (head != tensors.places().end() && !at::equal(read(head->second), read(embedding->second)))
    throw IoError(head->second.path, "has a head of its own; the head here is the token embedding");
}

}  // namespace garonne::train
