#include "plan/stage/policy.hpp"

namespace garonne::plan {
namespace {

// The last block's backward follows its forward at once: dropping its records saves nothing.
RecomputeChoice all_but_the_last(const ModelGraph& graph) {
  RecomputeChoice choice(static_cast<std::size_t>(graph.blocks()), true);
  if (!choice.empty()) choice.back() = false;
  return choice;
}

}  // namespace

StageSolver full_policy() {
  return make_policy(
      "full", "keep block inputs only and run each block's forward again before its backward",
      [](const ModelGraph& graph) -> std::vector<NodeSchedule> {
        return {recompute_blocks(graph, all_but_the_last(graph))};
      });
}

}  // namespace garonne::plan
