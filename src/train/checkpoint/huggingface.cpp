#include "train/checkpoint/huggingface.hpp"

#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/file.hpp"
#include "train/checkpoint/huggingface_form.hpp"
#include "train/checkpoint/safetensors.hpp"

namespace garonne::train {
namespace {

void export_tokenizer(const data::Tokenizer& tokenizer, std::int64_t sequence,
                      const std::string& directory) {
  const data::TokenizerFile file = data::huggingface_tokenizer(tokenizer);
  write_file_durably(directory + "/" + file.name, file.content);
  nlohmann::ordered_json config = {{"tokenizer_class", tokenizer.transformers_class()},
                                   {"model_max_length", sequence},
                                   {"clean_up_tokenization_spaces", false}};
  if (file.name != "tokenizer.json") {
    // Nothing around a text, as here, and no tokens that the model has not.
    config["add_bos_token"] = false;
    config["add_eos_token"] = false;
    config["extra_ids"] = 0;
  }
  for (const auto& [name, text] : tokenizer.special_tokens()) config[name] = text;
  write_file_durably(directory + "/tokenizer_config.json", config.dump(2) + "\n");
}

// null for none.
nlohmann::ordered_json id_of(const std::optional<std::uint32_t>& token) {
  return token ? nlohmann::ordered_json(*token) : nlohmann::ordered_json(nullptr);
}

}  // namespace

void export_huggingface(const RunConfig::Model& keys, std::int64_t vocabulary,
                        const nn::Model& model, const exec::ModelState& state,
                        const data::Tokenizer* tokenizer, const std::string& directory) {
  HuggingFaceForm form = huggingface_form(keys, vocabulary);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw IoError(directory, "cannot be made: " + error.message());
  std::vector<NamedTensor> tensors;
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const at::Tensor here = exec::on_host(state, state.parameter(p).trained());
    for (NamedTensor& made : form.tensors(model.graph.parameters[p].name, here))
      tensors.push_back(std::move(made));
  }
  std::vector<TensorSource> sources;
  for (const auto& [name, tensor] : tensors) {
    sources.push_back({name,
                       tensor.scalar_type() == at::kDouble ? "F64" : "F32",
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  }
  write_safetensors(directory + "/model.safetensors", sources, {{"format", "pt"}});
  const auto begin = id_of(tokenizer != nullptr ? tokenizer->begin_of_text() : std::nullopt);
  const auto end = id_of(tokenizer != nullptr ? tokenizer->end_of_text() : std::nullopt);
  form.config["bos_token_id"] = begin;
  form.config["eos_token_id"] = end;
  form.config["dtype"] = state.precision == Precision::Float64 ? "float64" : "float32";
  write_file_durably(directory + "/config.json", form.config.dump(2) + "\n");
  const nlohmann::ordered_json generation = {
      {"_from_model_config", true}, {"bos_token_id", begin}, {"eos_token_id", end}};
  write_file_durably(directory + "/generation_config.json", generation.dump(2) + "\n");
  if (tokenizer != nullptr) export_tokenizer(*tokenizer, keys.sequence, directory);
}

}  // namespace garonne::train
