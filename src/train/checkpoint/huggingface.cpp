#include "train/checkpoint/huggingface.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "train/checkpoint/safetensors.hpp"

namespace garonne::train {
namespace {

struct Renamed {
  std::string name;
  bool transposed = false;  // Hugging Face keeps these as [inputs, outputs]
};

Renamed renamed(const std::string& name) {
  static const std::vector<std::pair<std::string, Renamed>> parts = {
      {"attention_norm", {"ln_1", false}}, {"feed_forward_norm", {"ln_2", false}},
      {"qkv", {"attn.c_attn", true}},      {"projection", {"attn.c_proj", true}},
      {"up", {"mlp.c_fc", true}},          {"down", {"mlp.c_proj", true}}};
  if (name == "token_embedding.weight") return {"transformer.wte.weight"};
  if (name == "position_embedding.weight") return {"transformer.wpe.weight"};
  if (name.rfind("final_norm.", 0) == 0) return {"transformer.ln_f." + name.substr(11)};
  // layer.<n>.<part>.<weight or bias>
  const auto number_end = name.find('.', 6);
  const auto part_end = name.find('.', number_end + 1);
  const std::string part = name.substr(number_end + 1, part_end - number_end - 1);
  for (const auto& [ours, theirs] : parts) {
    if (ours != part) continue;
    const std::string leaf = name.substr(part_end + 1);
    return {
        fmt::format("transformer.h.{}.{}.{}", name.substr(6, number_end - 6), theirs.name, leaf),
        theirs.transposed && leaf == "weight"};
  }
  throw InternalError("no name in Hugging Face's GPT-2 for " + name);
}

}  // namespace

void export_huggingface(const nn::GptSizes& sizes, const nn::Model& model,
                        const exec::ModelState& state, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw IoError(directory, "cannot be made: " + error.message());
  std::vector<at::Tensor> tensors;
  std::vector<TensorSource> sources;
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const Renamed name = renamed(model.graph.parameters[p].name);
    const at::Tensor here = exec::on_host(state, state.parameter(p).trained());
    tensors.push_back(name.transposed ? here.t().contiguous() : here);
    const at::Tensor& tensor = tensors.back();
    sources.push_back({name.name,
                       tensor.scalar_type() == at::kDouble ? "F64" : "F32",
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  }
  write_safetensors(directory + "/model.safetensors", sources, {{"format", "pt"}});
  const nlohmann::ordered_json config = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"activation_function", "gelu_new"},
      {"n_layer", sizes.layers},
      {"n_head", sizes.heads},
      {"n_embd", sizes.hidden},
      {"n_inner", 4 * sizes.hidden},
      {"n_positions", sizes.sequence},
      {"n_ctx", sizes.sequence},
      {"vocab_size", sizes.vocabulary},
      {"embd_pdrop", sizes.dropout},
      {"resid_pdrop", sizes.dropout},
      {"attn_pdrop", 0.0},
      {"layer_norm_epsilon", 1e-5},
      {"initializer_range", 0.02},
      {"scale_attn_weights", true},
      {"tie_word_embeddings", true},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"dtype", state.precision == Precision::Float64 ? "float64" : "float32"}};
  write_file_durably(directory + "/config.json", config.dump(2) + "\n");
}

}  // namespace garonne::train
