#include "train/checkpoint/huggingface.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/json_input.hpp"
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

// In config.json, of which transformers passes over what it does not know: each file of a tokenizer
// that the export wrote, and its hash. Weights are the same bytes whatever tokenizer is beside
// them.
constexpr const char* written_tokenizer = "garonne_tokenizer_files";

struct WrittenFile {
  std::string name;
  std::string content;
};

// What the export that is in `directory` says of itself; nothing where it is of an older version.
std::map<std::string, std::string> written_before(const std::string& directory) {
  const std::string path = directory + "/config.json";
  std::map<std::string, std::string> hashes;
  try {
    const nlohmann::json json = parse_json(read_text_file(path), path, FileOwner::Run);
    const JsonFile file(json, path, FileOwner::Run);
    file.root().expect_object();
    if (!file.root().has(written_tokenizer)) return {};
    for (const auto& [name, hash] : file.root().key(written_tokenizer).members())
      hashes.emplace(name, hash.text());
  } catch (const IoError&) {
    return {};  // not as an export writes it, so it vouches for no file
  }
  return hashes;
}

// Files of tokenizers in a folder other than those that are as they will be written.
struct TokenizersThere {
  std::vector<std::string> exported;  // still as the earlier export wrote them
  std::vector<std::string> others;
};

TokenizersThere tokenizers_there(const std::string& directory,
                                 const std::map<std::string, std::string>& before,
                                 const std::vector<WrittenFile>& files) {
  std::vector<std::string> names = {tokenizer_config};
  for (const std::string& kind : data::tokenizer_names()) {
    const std::string name = data::tokenizer_file(kind);
    if (!name.empty()) names.push_back(name);
  }
  TokenizersThere there;
  std::error_code error;
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    if (!std::filesystem::exists(path, error)) continue;
    const bool is_file = std::filesystem::is_regular_file(path, error);
    const std::string hash = is_file ? hash_file(path) : "";
    const bool stays = std::any_of(files.begin(), files.end(), [&](const WrittenFile& file) {
      return file.name == name && hash_text(file.content) == hash;
    });
    if (stays) continue;
    const auto written = before.find(name);
    const bool is_exported = is_file && written != before.end() && written->second == hash;
    (is_exported ? there.exported : there.others).push_back(name);
  }
  return there;
}

void remove_file(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error)
    throw IoError(path, "is of an earlier export and cannot be removed: " + error.message());
}

std::vector<WrittenFile> tokenizer_files(const data::Tokenizer& tokenizer, data::TokenizerFile file,
                                         const TextMarks& marks, std::int64_t sequence) {
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
  return {{std::move(file.name), std::move(file.content)},
          {tokenizer_config, config.dump(2) + "\n"}};
}

}  // namespace

ExportedFiles export_huggingface(const StoredModel& model, const data::Tokenizer* tokenizer,
                                 const std::string& directory) {
  const RunConfig::Model& keys = model.config.model;
  HuggingFaceForm form = huggingface_form(keys, model.setup.facts.vocabulary);
  const TextMarks marks = marks_of(model.setup.facts.marks, tokenizer);
  ExportedFiles exported;
  std::vector<WrittenFile> of_tokenizer;
  if (tokenizer != nullptr) {
    data::TokenizerFile file = data::huggingface_tokenizer(*tokenizer);
    exported.left_out = file.left_out;
    of_tokenizer = tokenizer_files(*tokenizer, std::move(file), marks, keys.sequence);
  }
  std::vector<std::string> files = {"config.json", "generation_config.json"};
  for (const WrittenFile& file : of_tokenizer) files.push_back(file.name);
  std::map<std::string, std::string> before;
  if (expect_export_folder(directory, files)) before = written_before(directory);
  const TokenizersThere there = tokenizers_there(directory, before, of_tokenizer);
  if (!there.others.empty() && tokenizer != nullptr) {
    throw ConfigError("--to", directory,
                      "holds a " + there.others.front() +
                          " that no export of Garonne wrote as it is, and that would be replaced "
                          "or taken for the exported tokenizer; give another folder, or remove it");
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw IoError(directory, "cannot be made: " + error.message());
  write_exported(directory, sources_of(model, form));
  // Before config.json says other hashes, by which those of before would be of nobody.
  for (const std::string& name : there.exported) {
    remove_file(directory + "/" + name);
    if (std::find(files.begin(), files.end(), name) == files.end())
      exported.removed.push_back(name);
  }
  form.config.update(to_json(marks));
  form.config["dtype"] =
      model.setup.declaration.precision == Precision::Float64 ? "float64" : "float32";
  for (const WrittenFile& file : of_tokenizer)
    form.config[written_tokenizer][file.name] = hash_text(file.content);
  write_file_durably(directory + "/config.json", form.config.dump(2) + "\n");
  nlohmann::ordered_json generation = {{"_from_model_config", true}};
  generation.update(to_json(marks));
  write_file_durably(directory + "/generation_config.json", generation.dump(2) + "\n");
  for (const WrittenFile& file : of_tokenizer)
    write_file_durably(directory + "/" + file.name, file.content);
  return exported;
}

}  // namespace garonne::train
