#include "plan/model/attention_core.hpp"

#include "plan/model/model_graph.hpp"

namespace garonne::plan {

bool is_attention_core(const NodeSpec& node) {
  return node.kind == "attention" || node.kind == "grouped_attention";
}

}  // namespace garonne::plan
