#include "train/checkpoint/huggingface_import.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/printable.hpp"
#include "train/checkpoint/huggingface_form.hpp"
#include "train/checkpoint/safetensors.hpp"
#include "train/checkpoint/tensor_file.hpp"

namespace garonne::train {
namespace {

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// All safetensors of the folder, and which of them has a tensor.
class Tensors {
 public:
  Tensors(const std::string& directory, const HuggingFaceForm& form) : form_(form) {
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
      const bool whole_name = entry.name.rfind(form_.prefix, 0) == 0 || entry.name == form_.head;
      const std::string name = whole_name ? entry.name : form_.prefix + entry.name;
      if (!places_.emplace(name, Place{path, files_.back().get(), &entry}).second)
        throw IoError(path, fmt::format("has the tensor {} again", printable(entry.name)));
    }
  }

  const HuggingFaceForm& form_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> places_;
};

at::Tensor read(const Tensors::Place& place) {
  return read_tensor(*place.file, place.path, *place.entry);
}

// The tensor of this name, in type and shape of `model`.
at::Tensor read_as(const Tensors& tensors, const std::string& directory, const std::string& name,
                   const at::Tensor& model) {
  const auto found = tensors.places().find(name);
  if (found == tensors.places().end())
    throw IoError(directory, fmt::format("has no tensor {}", name));
  const Tensors::Place& place = found->second;
  if (at::IntArrayRef(place.entry->shape) != model.sizes()) {
    throw IoError(place.path,
                  fmt::format("tensor {} has the shape [{}], and config.json makes it [{}]", name,
                              fmt::join(place.entry->shape, ", "), fmt::join(model.sizes(), ", ")));
  }
  return read(place).to(model.scalar_type());
}

bool is_passed_over(const HuggingFaceForm& form, const std::string& name) {
  for (const std::string& end : form.passed_over) {
    if (name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0)
      return true;
  }
  return false;
}

// Models that look like one of ours and compute something else.
const std::map<std::string, std::string>& other_types() {
  static const std::map<std::string, std::string> reasons = {
      {"qwen2", "its queries, keys and values have biases, and a llama here has none"},
      {"qwen3", "it norms queries and keys, which a llama here does not"},
      {"gemma", "its norms and embeddings are scaled otherwise than a llama's here"},
      {"phi3", "its projections are cut otherwise, and its positions scaled"},
      {"mixtral", "it has experts, and a llama here has none"}};
  return reasons;
}

// GPT-2s of a small vocabulary carry transformers' defaults, 50256 for both, which no token has.
void leave_out_unknown_marks(nlohmann::json& config, std::int64_t vocabulary,
                             const std::string& path,
                             const std::function<void(const std::string&)>& warn) {
  if (!config.is_object()) return;
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    if (!config.contains(key)) continue;
    nlohmann::json& ids = config[key];
    const auto is_unknown = [&](const nlohmann::json& id) {
      if (!id.is_number_integer()) return false;
      const bool known = id.is_number_unsigned() &&
                         id.get<std::uint64_t>() < static_cast<std::uint64_t>(vocabulary);
      if (!known) {
        warn(fmt::format("{}: {} = {} is outside the vocabulary of {} and left out", path, key,
                         id.dump(), vocabulary));
      }
      return !known;
    };
    if (ids.is_array()) {
      nlohmann::json kept = nlohmann::json::array();
      std::copy_if(ids.begin(), ids.end(), std::back_inserter(kept), std::not_fn(is_unknown));
      ids = std::move(kept);
    } else if (is_unknown(ids)) {
      ids = nullptr;
    }
  }
}

}  // namespace

RunConfig::Model huggingface_model_keys(const std::string& directory) {
  const std::string path = directory + "/config.json";
  const nlohmann::json json = parse_json(read_text_file(path), path);
  const JsonFile file(json, path);
  const JsonPlace root = file.root();
  root.expect_object();
  const std::string type = root.key("model_type").text();
  if (type == "gpt2") return gpt2_keys(root);
  // Without a window, which llama_keys refuses, Mistral computes the same.
  if (type == "llama" || type == "mistral") return llama_keys(root, type == "mistral");
  const auto other = other_types().find(type);
  root.key("model_type")
      .refuse(other == other_types().end() ? "known are gpt2, llama and mistral"
                                           : other->second + "; known are gpt2, llama and mistral");
}

TextMarks huggingface_marks(const std::string& directory, std::int64_t vocabulary,
                            const std::function<void(const std::string&)>& warn) {
  TextMarks marks;
  for (const char* name : {"/config.json", "/generation_config.json"}) {
    const std::string path = directory + name;
    if (!is_there(path)) continue;
    nlohmann::json json = parse_json(read_text_file(path), path);
    leave_out_unknown_marks(json, vocabulary, path, warn);
    const JsonFile file(json, path);
    file.root().expect_object();
    const TextMarks more = marks_from_json(file.root(), vocabulary);
    if (!marks.begin) marks.begin = more.begin;
    for (const std::uint32_t end : more.ends) {
      if (std::find(marks.ends.begin(), marks.ends.end(), end) == marks.ends.end())
        marks.ends.push_back(end);
    }
  }
  return marks;
}

void import_huggingface(const std::string& directory, const RunConfig::Model& keys,
                        const nn::Model& model, const exec::ModelState& state) {
  const HuggingFaceForm form = huggingface_form(keys, keys.vocabulary);
  const Tensors tensors(directory, form);
  std::set<std::string> used;
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const std::string& name = model.graph.parameters[p].name;
    const at::Tensor target = state.parameter(p).trained();
    std::vector<at::Tensor> given;
    // What an export would have shows the names and shapes that are wanted.
    for (const NamedTensor& wanted : form.tensors(name, target)) {
      used.insert(wanted.name);
      given.push_back(read_as(tensors, directory, wanted.name, wanted.tensor));
    }
    target.copy_(form.parameter(name, given).reshape(target.sizes()));
  }
  const auto head = tensors.places().find(form.head);
  for (const auto& [name, place] : tensors.places()) {
    if (!used.count(name) && !is_passed_over(form, name) && !(form.tied && name == form.head))
      throw IoError(place.path, fmt::format("has the tensor {}, which is none of {}",
                                            printable(place.entry->name), form.noun));
  }
  if (form.tied && head != tensors.places().end() &&
      !at::equal(read(head->second), read(tensors.places().at(form.table))))
    throw IoError(head->second.path, "has a head of its own; the head here is the token embedding");
}

}  // namespace garonne::train
