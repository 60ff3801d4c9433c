#include <fmt/format.h>

#include <cmath>

#include "base/key_limits.hpp"
#include "nn/gpt/gpt.hpp"
#include "train/checkpoint/huggingface_form.hpp"
#include "train/checkpoint/huggingface_names.hpp"

namespace garonne::train {
namespace {

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
          {"attn_pdrop", sizes.attention_dropout},
          {"layer_norm_epsilon", 1e-5},
          {"initializer_range", 0.02},
          {"scale_attn_weights", true},
          {"tie_word_embeddings", true},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

}  // namespace

HuggingFaceForm gpt2_form(const RunConfig::Model& keys, std::int64_t vocabulary) {
  HuggingFaceForm form;
  form.noun = "a GPT-2";
  form.config = gpt2_config(nn::gpt_sizes(keys, vocabulary));
  form.tensors = [](const std::string& name, const at::Tensor& tensor) {
    const HuggingFaceName theirs = huggingface_name(name);
    return std::vector<NamedTensor>{
        {theirs.name, theirs.transposed ? tensor.t().contiguous() : tensor}};
  };
  form.parameter = [](const std::string& name, const std::vector<at::Tensor>& tensors) {
    return huggingface_name(name).transposed ? tensors[0].t() : tensors[0];
  };
  form.prefix = "transformer.";
  form.table = "transformer.wte.weight";
  form.head = "lm_head.weight";
  form.passed_over = {".attn.bias", ".attn.masked_bias"};
  return form;
}

RunConfig::Model gpt2_keys(const JsonPlace& config) {
  if (!is_default(config, "activation_function")) {
    const std::string activation = config.key("activation_function").text();
    if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
      config.key("activation_function").refuse("known are gelu_new and gelu_pytorch_tanh");
  }
  RunConfig::Model keys;
  keys.kind = "gpt";
  keys.layers = config.key("n_layer").integer(1, most_layers);
  keys.hidden = config.key("n_embd").integer(1, most_width);
  keys.heads = config.key("n_head").integer(1, most_width);
  keys.sequence = config.key("n_positions").integer(1, most_sequence);
  keys.vocabulary = config.key("vocab_size").integer(1, most_huggingface_size);
  const auto probability = [&](const char* key) {
    if (is_default(config, key)) return 0.1;
    const double given = config.key(key).number(0, 1);
    if (given == 1) config.key(key).refuse("must be below 1");
    return given;
  };
  keys.dropout = probability("resid_pdrop");
  keys.attention_dropout = probability("attn_pdrop");
  const double embedding = probability("embd_pdrop");
  if (embedding != keys.dropout) {
    // Of one that is not there the default is another than what the other says.
    const bool is_said = !is_default(config, "embd_pdrop");
    config.key(is_said ? "embd_pdrop" : "resid_pdrop")
        .refuse(
            fmt::format("must be {}, {}{}: model.dropout is of both; give both the one to train "
                        "with, which changes nothing else",
                        is_said ? "resid_pdrop" : "embd_pdrop", is_said ? keys.dropout : embedding,
                        is_said ? "" : ", its default"));
  }
  if (!is_default(config, "n_inner") && config.key("n_inner").integer() != 4 * keys.hidden)
    config.key("n_inner").refuse(fmt::format("must be four times n_embd, {}", 4 * keys.hidden));
  if (!is_default(config, "layer_norm_epsilon") &&
      std::abs(config.key("layer_norm_epsilon").number() - 1e-5) > 1e-12)
    config.key("layer_norm_epsilon").refuse("must be 1e-5");
  expect_truth(config, "tie_word_embeddings", true);
  expect_truth(config, "scale_attn_weights", true);
  expect_truth(config, "scale_attn_by_inverse_layer_idx", false);
  expect_truth(config, "add_cross_attention", false);
  return keys;
}

}  // namespace garonne::train
