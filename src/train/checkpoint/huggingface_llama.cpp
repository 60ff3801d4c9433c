#include <ATen/Functions.h>
#include <fmt/format.h>

#include <limits>

#include "base/error.hpp"
#include "base/key_limits.hpp"
#include "nn/gpt/llama.hpp"
#include "train/checkpoint/huggingface_form.hpp"

namespace garonne::train {
namespace {

// A parameter of ours, taken apart: layer.<n>.<part>.weight, or without a layer.
struct Part {
  std::string layer;  // the number
  std::string name;
};

Part part_of(const std::string& name) {
  if (name.rfind("layer.", 0) != 0) return {"", name.substr(0, name.find('.'))};
  const auto number_end = name.find('.', 6);
  const auto part_end = name.find('.', number_end + 1);
  return {name.substr(6, number_end - 6), name.substr(number_end + 1, part_end - number_end - 1)};
}

std::vector<NamedTensor> llama_tensors(const nn::LlamaSizes& sizes, const std::string& name,
                                       const at::Tensor& tensor) {
  const Part part = part_of(name);
  if (part.name == "token_embedding") return {{"model.embed_tokens.weight", tensor}};
  if (part.name == "head") return {{"lm_head.weight", tensor}};
  if (part.name == "final_norm") return {{"model.norm.weight", tensor}};
  const auto theirs = [&](const char* leaf) {
    return fmt::format("model.layers.{}.{}.weight", part.layer, leaf);
  };
  if (part.name == "attention_norm") return {{theirs("input_layernorm"), tensor}};
  if (part.name == "feed_forward_norm") return {{theirs("post_attention_layernorm"), tensor}};
  if (part.name == "projection") return {{theirs("self_attn.o_proj"), tensor}};
  if (part.name == "down") return {{theirs("mlp.down_proj"), tensor}};
  if (part.name == "qkv") {
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
  if (part.name == "gate_up") {
    return {{theirs("mlp.gate_proj"), tensor.narrow(0, 0, sizes.inner).contiguous()},
            {theirs("mlp.up_proj"), tensor.narrow(0, sizes.inner, sizes.inner).contiguous()}};
  }
  throw InternalError("no name in Hugging Face's Llama for " + name);
}

at::Tensor llama_parameter(const nn::LlamaSizes& sizes, const std::string& name,
                           const std::vector<at::Tensor>& tensors) {
  const Part part = part_of(name);
  if (part.name == "gate_up") return at::cat({tensors[0], tensors[1]}, 0);
  if (part.name != "qkv") return tensors[0];
  const auto groups = [&](const at::Tensor& heads, std::int64_t count) {
    return heads.view({sizes.kv_heads, count, sizes.head_size(), sizes.hidden});
  };
  return at::cat(
      {groups(tensors[0], sizes.members()), groups(tensors[1], 1), groups(tensors[2], 1)}, 1);
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

// Newer files have rope_parameters, older ones rope_theta with rope_scaling.
double rope_theta_of(const JsonPlace& config) {
  constexpr double most = std::numeric_limits<double>::max();
  double theta =
      is_default(config, "rope_theta") ? 10000.0 : config.key("rope_theta").number(1, most);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (is_default(config, key)) continue;
    const JsonPlace rope = config.key(key);
    rope.expect_object();
    for (const char* type : {"rope_type", "type"}) {
      if (!is_default(rope, type) && rope.key(type).text() != "default")
        rope.key(type).refuse("known is default: positions are not scaled here");
    }
    if (is_default(rope, "rope_type") && is_default(rope, "type") && !is_default(rope, "factor"))
      rope.key("factor").refuse("must not be there: positions are not scaled here");
    if (!is_default(rope, "partial_rotary_factor") &&
        rope.key("partial_rotary_factor").number() != 1)
      rope.key("partial_rotary_factor").refuse("must be 1: whole heads are turned here");
    if (!is_default(rope, "rope_theta")) theta = rope.key("rope_theta").number(1, most);
  }
  return theta;
}

// A window as long as the model's positions leaves nothing out.
void expect_no_window(const JsonPlace& config, bool is_mistral, std::int64_t sequence) {
  constexpr const char* reason =
      "every token attends to all before it here: must be null or as many as "
      "max_position_embeddings";
  // Of transformers' MistralConfig, which knows no use_sliding_window.
  constexpr std::int64_t window_of_mistral = 4096;
  if (is_mistral && !config.has("sliding_window")) {
    if (sequence > window_of_mistral) {
      config.key("max_position_embeddings")
          .refuse(fmt::format("is more than Mistral's window of {}, which counts where no "
                              "sliding_window is given; {}",
                              window_of_mistral, reason));
    }
    return;
  }
  if (is_default(config, "sliding_window")) return;
  // Some files of Llamas name a window that they do not use.
  if (!is_mistral && !is_default(config, "use_sliding_window") &&
      !config.key("use_sliding_window").truth())
    return;
  if (config.key("sliding_window").integer(1) < sequence)
    config.key("sliding_window").refuse(reason);
}

}  // namespace

HuggingFaceForm llama_form(const RunConfig::Model& keys, std::int64_t vocabulary) {
  const nn::LlamaSizes sizes = nn::llama_sizes(keys, vocabulary);
  HuggingFaceForm form;
  form.noun = "a Llama";
  form.config = llama_config(sizes);
  form.tensors = [sizes](const std::string& name, const at::Tensor& tensor) {
    return llama_tensors(sizes, name, tensor);
  };
  form.parameter = [sizes](const std::string& name, const std::vector<at::Tensor>& tensors) {
    return llama_parameter(sizes, name, tensors);
  };
  form.prefix = "model.";
  form.table = "model.embed_tokens.weight";
  form.head = "lm_head.weight";
  form.tied = sizes.tied_embeddings;
  // Of rotary positions, in files of before 2023.
  form.passed_over = {".rotary_emb.inv_freq"};
  return form;
}

RunConfig::Model llama_keys(const JsonPlace& config, bool is_mistral) {
  RunConfig::Model keys;
  keys.kind = "llama";
  const auto size = [&](const char* key, std::int64_t most) {
    return config.key(key).integer(1, most);
  };
  keys.layers = size("num_hidden_layers", most_layers);
  keys.hidden = size("hidden_size", most_width);
  keys.heads = size("num_attention_heads", most_width);
  keys.kv_heads = keys.heads;
  // Of transformers' MistralConfig; null is as many as heads there, too.
  if (is_mistral && !config.has("num_key_value_heads")) keys.kv_heads = 8;
  if (!is_default(config, "num_key_value_heads"))
    keys.kv_heads = size("num_key_value_heads", most_width);
  keys.inner = size("intermediate_size", most_width);
  keys.sequence = size("max_position_embeddings", most_sequence);
  keys.vocabulary = size("vocab_size", most_huggingface_size);
  keys.norm_epsilon =
      is_default(config, "rms_norm_eps") ? 1e-6 : config.key("rms_norm_eps").number(0, 1);
  keys.tied_embeddings =
      !is_default(config, "tie_word_embeddings") && config.key("tie_word_embeddings").truth();
  if (keys.hidden % keys.heads != 0)
    config.key("num_attention_heads")
        .refuse(fmt::format("must divide hidden_size, {}", keys.hidden));
  if (keys.heads % keys.kv_heads != 0) {
    if (is_default(config, "num_key_value_heads")) {
      config.key("num_attention_heads")
          .refuse(fmt::format("must be a multiple of the {} heads of keys and values that Mistral "
                              "has where no num_key_value_heads is given",
                              keys.kv_heads));
    }
    config.key("num_key_value_heads")
        .refuse(fmt::format("must divide num_attention_heads, {}", keys.heads));
  }
  if (!is_default(config, "head_dim") &&
      config.key("head_dim").integer() != keys.hidden / keys.heads) {
    config.key("head_dim")
        .refuse(fmt::format("must be hidden_size over num_attention_heads, {}",
                            keys.hidden / keys.heads));
  }
  if (!is_default(config, "hidden_act")) {
    const std::string activation = config.key("hidden_act").text();
    if (activation != "silu" && activation != "swish")
      config.key("hidden_act").refuse("known is silu, which is swish too");
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (!is_default(config, key) && config.key(key).truth())
      config.key(key).refuse("must be false: linear layers of a llama have no biases here");
  }
  if (!is_default(config, "attention_dropout") && config.key("attention_dropout").number() != 0)
    config.key("attention_dropout").refuse("must be 0: a llama drops nothing here");
  expect_no_window(config, is_mistral, keys.sequence);
  keys.rope_theta = rope_theta_of(config);
  return keys;
}

}  // namespace garonne::train
