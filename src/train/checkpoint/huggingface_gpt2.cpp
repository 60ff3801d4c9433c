#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "train/checkpoint/huggingface_form.hpp"

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

std::vector<NamedTensor> gpt2_tensors(const std::string& name, const at::Tensor& tensor) {
  const Renamed theirs = renamed(name);
  return {{theirs.name, theirs.transposed ? tensor.t().contiguous() : tensor}};
}

nlohmann::ordered_json gpt2_config(const nn::GptSizes& sizes) {
  return {{"architectures", {"GPT2LMHeadModel"}},
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
          {"eos_token_id", nullptr}};
}

}  // namespace garonne::train
