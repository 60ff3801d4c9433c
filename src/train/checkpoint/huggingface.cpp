#include "train/checkpoint/huggingface.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "nn/element_type.hpp"
#include "train/checkpoint/export_folder.hpp"
#include "train/checkpoint/huggingface_form.hpp"

namespace garonne::train {
namespace {

// The tensors of one of our parameters at a time.
class LoadedParameter {
 public:
  LoadedParameter(const StoredModel& model, const HuggingFaceForm& form)
      : model_(model), form_(form) {}

  const NamedTensor& tensor(std::size_t parameter, std::size_t number) {
    if (tensors_.empty() || parameter != loaded_) {
      tensors_.clear();
      const std::string& name = model_.setup.model.graph.parameters[parameter].name;
      tensors_ = form_.tensors(name, model_.parameter(parameter));
      loaded_ = parameter;
    }
    return tensors_.at(number);
  }

 private:
  const StoredModel& model_;
  const HuggingFaceForm& form_;
  std::size_t loaded_ = 0;
  std::vector<NamedTensor> tensors_;
};

// What is written is loaded when it is its turn. Model and form outlive it.
std::vector<TensorSource> sources_of(const StoredModel& model, const HuggingFaceForm& form) {
  const auto loaded = std::make_shared<LoadedParameter>(model, form);
  const at::ScalarType type = nn::state_scalar_type(model.setup.declaration.precision);
  std::vector<TensorSource> sources;
  const auto& parameters = model.setup.model.graph.parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    // Without memory: only shapes are asked for.
    const at::Tensor sketch =
        at::empty(parameters[p].shape, at::TensorOptions().dtype(type).device(at::kMeta));
    const std::vector<NamedTensor> made = form.tensors(parameters[p].name, sketch);
    for (std::size_t k = 0; k < made.size(); ++k) {
      TensorSource source;
      source.name = made[k].name;
      source.type = type == at::kDouble ? "F64" : "F32";
      source.shape = made[k].tensor.sizes().vec();
      source.bring = [loaded, p, k](const TensorSource::Show& show) {
        const at::Tensor& tensor = loaded->tensor(p, k).tensor;
        show({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
      };
      sources.push_back(std::move(source));
    }
  }
  return sources;
}

constexpr const char* tokenizer_config = "tokenizer_config.json";

// Files of tokenizers in the folder that an export of `files` does not write: readers of the folder
// would take them for its own.
std::vector<std::string> other_tokenizers(const std::string& directory,
                                          const std::vector<std::string>& files) {
  std::vector<std::string> names = {tokenizer_config};
  for (const std::string& kind : data::tokenizer_names()) {
    const std::string name = data::tokenizer_file(kind);
    if (!name.empty()) names.push_back(name);
  }
  std::vector<std::string> others;
  std::error_code error;
  for (const std::string& name : names) {
    const bool is_written = std::find(files.begin(), files.end(), name) != files.end();
    if (!is_written && std::filesystem::exists(directory + "/" + name, error))
      others.push_back(name);
  }
  return others;
}

void remove_file(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error)
    throw IoError(path, "is of an earlier export and cannot be removed: " + error.message());
}

void export_tokenizer(const data::Tokenizer& tokenizer, const data::TokenizerFile& file,
                      const TextMarks& marks, std::int64_t sequence, const std::string& directory) {
  write_file_durably(directory + "/" + file.name, file.content);
  nlohmann::ordered_json config = {{"tokenizer_class", tokenizer.transformers_class()},
                                   {"model_max_length", sequence},
                                   {"clean_up_tokenization_spaces", false}};
  if (file.name != "tokenizer.json") {
    // Nothing around a text, as here.
    config["add_bos_token"] = false;
    config["add_eos_token"] = false;
  }
  const auto end = marks.ends.empty() ? std::nullopt : std::optional(marks.ends.front());
  for (const auto& [name, text] : tokenizer.special_tokens(marks.begin, end)) config[name] = text;
  write_file_durably(directory + "/" + tokenizer_config, config.dump(2) + "\n");
}

}  // namespace

std::string export_huggingface(const StoredModel& model, const data::Tokenizer* tokenizer,
                               const std::string& directory) {
  const RunConfig::Model& keys = model.config.model;
  HuggingFaceForm form = huggingface_form(keys, model.setup.facts.vocabulary);
  std::vector<std::string> files = {"config.json", "generation_config.json"};
  data::TokenizerFile tokenizer_file;
  if (tokenizer != nullptr) {
    tokenizer_file = data::huggingface_tokenizer(*tokenizer);
    files.push_back(tokenizer_file.name);
    files.emplace_back(tokenizer_config);
  }
  const bool over_earlier = expect_export_folder(directory, files);
  std::error_code error;
  const std::vector<std::string> others = other_tokenizers(directory, files);
  // Exports write it beside every tokenizer; without it others are of somebody else.
  const bool are_ours =
      over_earlier && std::filesystem::exists(directory + "/" + tokenizer_config, error);
  if (!others.empty() && !are_ours && tokenizer != nullptr) {
    throw ConfigError("--to", directory,
                      "holds a " + others.front() +
                          " that no export of Garonne wrote and that would be taken for the "
                          "exported tokenizer; give another folder, or remove it");
  }
  std::filesystem::create_directories(directory, error);
  if (error) throw IoError(directory, "cannot be made: " + error.message());
  write_exported(directory, sources_of(model, form));
  if (are_ours) {
    for (const std::string& other : others) remove_file(directory + "/" + other);
  }
  const TextMarks marks = marks_of(model.setup.facts.marks, tokenizer);
  form.config.update(to_json(marks));
  form.config["dtype"] =
      model.setup.declaration.precision == Precision::Float64 ? "float64" : "float32";
  write_file_durably(directory + "/config.json", form.config.dump(2) + "\n");
  nlohmann::ordered_json generation = {{"_from_model_config", true}};
  generation.update(to_json(marks));
  write_file_durably(directory + "/generation_config.json", generation.dump(2) + "\n");
  if (tokenizer == nullptr) return {};
  export_tokenizer(*tokenizer, tokenizer_file, marks, keys.sequence, directory);
  return tokenizer_file.left_out;
}

}  // namespace garonne::train
