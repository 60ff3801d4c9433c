#include "plan/model/model_hash.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.hpp"

namespace garonne::plan {

std::string model_hash(const ModelGraph& graph) {
  std::string text;
  for (const auto& value : graph.values) {
    text += fmt::format("value {} {} {} {} {} {} {}\n", value.name, value.bytes,
                        number_type_name(value.type), value.shape, value.differentiable,
                        value.loaded, value.received_by);
  }
  for (const auto& parameter : graph.parameters) {
    text += fmt::format("parameter {} {} {} {} {} {} {} {} {}\n", parameter.name, parameter.shape,
                        parameter.elements, parameter.decays, parameter.complex, parameter.tied,
                        parameter.counted, parameter.replicated, parameter.sums_over_tensor);
    if (parameter.weight_decay) text += fmt::format("decay {}\n", *parameter.weight_decay);
  }
  for (const auto& node : graph.nodes) {
    text +=
        fmt::format("node {} {} {} {} {} {} {} {} {} {} {}\n", node.name, node.kind, node.cost_key,
                    node.chunk, node.inputs, node.output, node.parameters, node.pinned_values,
                    node.private_slot_bytes, node.splits_backward, node.hands_over);
    for (const KeepOption& option : node.further_options) {
      text += fmt::format("kept {} {} {} {}\n", option.name, option.exact, option.pinned_values,
                          option.private_slot_bytes);
    }
  }
  text += fmt::format("loss {}\n", graph.loss);
  return hash_text(text);
}

}  // namespace garonne::plan
