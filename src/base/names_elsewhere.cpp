#include "base/names_elsewhere.hpp"

#include <algorithm>
#include <map>

namespace garonne {

std::string name_of_elsewhere(const std::string& name) {
  static const std::map<std::string, std::string> names = {
      {"lr", "optimizer.learning_rate"},
      {"min_lr", "optimizer.minimum_learning_rate"},
      {"wd", "optimizer.weight_decay"},
      {"warmup_iters", "optimizer.warmup_steps"},
      {"lr_warmup_iters", "optimizer.warmup_steps"},
      {"adam_beta1", "optimizer.beta1"},
      {"adam_beta2", "optimizer.beta2"},
      {"grad_clip", "optimizer.clip_norm"},
      {"clip_grad", "optimizer.clip_norm"},
      {"max_grad_norm", "optimizer.clip_norm"},
      {"n_layer", "model.layers"},
      {"n_layers", "model.layers"},
      {"num_layers", "model.layers"},
      {"num_hidden_layers", "model.layers"},
      {"n_head", "model.heads"},
      {"n_heads", "model.heads"},
      {"num_attention_heads", "model.heads"},
      {"n_kv_heads", "model.kv_heads"},
      {"num_key_value_heads", "model.kv_heads"},
      {"num_query_groups", "model.kv_heads"},
      {"n_embd", "model.hidden"},
      {"hidden_size", "model.hidden"},
      {"hidden_channels", "model.hidden"},
      {"d_model", "model.hidden"},
      {"intermediate_size", "model.inner"},
      {"ffn_hidden_size", "model.inner"},
      {"n_modes", "model.modes"},
      {"block_size", "model.sequence"},
      {"seq_length", "model.sequence"},
      {"n_positions", "model.sequence"},
      {"max_position_embeddings", "model.sequence"},
      {"vocab_size", "model.vocabulary"},
      {"batch_size", "train.micro_batch"},
      {"micro_batch_size", "train.micro_batch"},
      {"global_batch_size", "train.global_batch"},
      {"max_iters", "train.steps"},
      {"train_iters", "train.steps"},
      {"max_steps", "train.steps"},
      {"dtype", "train.precision"},
      {"tensor_model_parallel_size", "grid.tensor"},
      {"pipeline_model_parallel_size", "grid.pipeline"},
      {"output_dir", "run.directory"},
      {"out_dir", "run.directory"},
      {"save_interval", "checkpoint.every"},
      {"eval_interval", "evaluation.every"},
      {"log_interval", "log.every"},
      {"log_every", "log.every"},
      {"logging_steps", "log.every"}};
  std::string plain = name.substr(name.rfind('.') + 1);
  plain.erase(0, plain.find_first_not_of('-'));
  std::replace(plain.begin(), plain.end(), '-', '_');
  const auto found = names.find(plain);
  return found == names.end() ? "" : found->second;
}

}  // namespace garonne
