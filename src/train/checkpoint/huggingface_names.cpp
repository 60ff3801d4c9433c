#include "train/checkpoint/huggingface_names.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/error.hpp"

namespace garonne::train {

HuggingFaceName huggingface_name(const std::string& name) {
  static const std::vector<std::pair<std::string, HuggingFaceName>> parts = {
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

}  // namespace garonne::train
