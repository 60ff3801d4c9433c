#include <algorithm>

#include "plan/stage/policy.hpp"

namespace garonne::plan {
namespace {

// The first k blocks are recomputed: they hold their records longest. Megatron's method "block"
// counts from the same end.
std::vector<NodeSchedule> uniform(const ModelGraph& graph) {
  std::vector<NodeSchedule> family;
  for (int blocks = 1; blocks < graph.blocks(); ++blocks) {
    RecomputeChoice choice(static_cast<std::size_t>(graph.blocks()), false);
    std::fill(choice.begin(), choice.begin() + blocks, true);
    family.push_back(recompute_blocks(graph, choice));
  }
  return family;
}

}  // namespace

StageSolver uniform_policy() {
  return make_policy("uniform", "run as few blocks again as the budget asks for", uniform);
}

}  // namespace garonne::plan
