#include "train/checkpoint/huggingface_form.hpp"
#include "train/checkpoint/huggingface_names.hpp"

namespace garonne::train {

std::vector<NamedTensor> gpt2_tensors(const std::string& name, const at::Tensor& tensor) {
  const HuggingFaceName theirs = huggingface_name(name);
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
