#include <algorithm>
#include <string>
#include <vector>

#include "plan/model/attention_core.hpp"
#include "plan/stage/policy.hpp"

namespace garonne::plan {
namespace {

// Stages without a layer of attention keep everything; a model without one has nothing to select.
std::string refusal_without_attention(const ModelGraph& graph) {
  const bool whole =
      graph.loss >= 0 && std::none_of(graph.values.begin(), graph.values.end(),
                                      [](const auto& v) { return v.received_by >= 0; });
  if (!whole || std::any_of(graph.nodes.begin(), graph.nodes.end(), is_attention_core)) return "";
  return "runs attention again, and the model has none";
}

// Megatron checkpoints the core of attention, scores to weighted values; the products around it
// keep what they read. Its output, which it keeps for the product that follows, comes with the
// second run anyway: without it the same seconds take fewer bytes.
std::vector<NodeSchedule> all_but_attention(const ModelGraph& graph) {
  if (!refusal_without_attention(graph).empty()) return {};
  Fates fates = keep_everything(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!is_attention_core(graph.nodes[n])) continue;
    set_fate(graph, static_cast<int>(n), {Fate::Recompute}, fates);
  }
  // Else one block's recomputation would reach into the one before.
  for (const int value : values_that_leave_blocks(graph))
    fates.values[static_cast<std::size_t>(value)] = Fate::Keep;
  return {recompute_on_demand(graph, fates)};
}

}  // namespace

StageSolver megatron_selective_policy() {
  StageSolver policy =
      make_policy("megatron-selective", "run the core of attention again, keep everything else",
                  all_but_attention);
  policy.in_auto = false;
  policy.refusal = [](const StageProblem& problem) {
    return refusal_without_attention(problem.model);
  };
  return policy;
}

}  // namespace garonne::plan
