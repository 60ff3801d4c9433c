#include <fmt/format.h>

#include "base/error.hpp"
#include "train/checkpoint/huggingface_form.hpp"

namespace garonne::train {

std::vector<NamedTensor> llama_tensors(const nn::LlamaSizes& sizes, const std::string& name,
                                       const at::Tensor& tensor) {
  if (name == "token_embedding.weight") return {{"model.embed_tokens.weight", tensor}};
  if (name == "head.weight") return {{"lm_head.weight", tensor}};
  if (name == "final_norm.weight") return {{"model.norm.weight", tensor}};
  // layer.<n>.<part>.weight
  const auto number_end = name.find('.', 6);
  const auto part_end = name.find('.', number_end + 1);
  const std::string part = name.substr(number_end + 1, part_end - number_end - 1);
  const auto theirs = [&](const char* leaf) {
    return fmt::format("model.layers.{}.{}.weight", name.substr(6, number_end - 6), leaf);
  };
  if (part == "attention_norm") return {{theirs("input_layernorm"), tensor}};
  if (part == "feed_forward_norm") return {{theirs("post_attention_layernorm"), tensor}};
  if (part == "projection") return {{theirs("self_attn.o_proj"), tensor}};
  if (part == "down") return {{theirs("mlp.down_proj"), tensor}};
  if (part == "qkv") {
    const std::int64_t members = sizes.members();
    const at::Tensor groups =
        tensor.view({sizes.kv_heads, members + 2, sizes.head_size(), sizes.hidden});
    // Heads [first, first + count) of all groups, one group after the other.
    const auto heads = [&](std::int64_t first, std::int64_t count) {
      return groups.narrow(1, first, count).reshape({-1, sizes.hidden}).contiguous();
    };
    return {{theirs("self_attn.q_proj"), heads(0, members)},
            {theirs("self_attn.k_proj"), heads(members, 1)},
            {theirs("self_attn.v_proj"), heads(members + 1, 1)}};
  }
  if (part == "gate_up") {
    return {{theirs("mlp.gate_proj"), tensor.narrow(0, 0, sizes.inner).contiguous()},
            {theirs("mlp.up_proj"), tensor.narrow(0, sizes.inner, sizes.inner).contiguous()}};
  }
  throw InternalError("no name in Hugging Face's Llama for " + name);
}

nlohmann::ordered_json llama_config(const nn::LlamaSizes& sizes) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"num_hidden_layers", sizes.layers},
          {"num_attention_heads", sizes.heads},
          {"num_key_value_heads", sizes.kv_heads},
          {"head_dim", sizes.head_size()},
          {"hidden_size", sizes.hidden},
          {"intermediate_size", sizes.inner},
          {"max_position_embeddings", sizes.sequence},
          {"vocab_size", sizes.vocabulary},
          {"rms_norm_eps", sizes.norm_epsilon},
          {"rope_theta", sizes.rope_theta},
          {"rope_scaling", nullptr},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"mlp_bias", false},
          {"initializer_range", 0.02},
          {"tie_word_embeddings", sizes.tied_embeddings},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

}  // namespace garonne::train
