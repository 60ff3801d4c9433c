#include <algorithm>
#include <cstdint>
#include <set>

#include "base/index.hpp"
#include "plan/stage/policy.hpp"

namespace garonne::plan {
namespace {

// Nodes that are cheap for their bytes run again, the others keep: Megatron's and torchtitan's
// selective recomputation with every threshold instead of a list of operations.
std::vector<NodeSchedule> selective(const ModelGraph& graph) {
  std::set<double> thresholds;
  for (const auto& node : graph.nodes) {
    if (node.output != graph.loss) thresholds.insert(seconds_per_byte(graph, node));
  }
  const std::vector<int> leaving = values_that_leave_blocks(graph);
  std::vector<NodeSchedule> family;
  for (const double threshold : thresholds) {
    Fates fates = keep_everything(graph);
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
      const NodeSpec& node = graph.nodes[as_index(n)];
      const bool again = seconds_per_byte(graph, node) <= threshold && node.output != graph.loss;
      if (again) set_fate(graph, n, {Fate::Recompute}, fates);
    }
    // Else one block's recomputation would reach into the one before.
    for (const int value : leaving) fates.values[as_index(value)] = Fate::Keep;
    family.push_back(recompute_on_demand(graph, fates));
  }
  return family;
}

}  // namespace

double seconds_per_byte(const ModelGraph& graph, const NodeSpec& node) {
  std::int64_t bytes = graph.values[as_index(node.output)].bytes;
  for (const std::int64_t slot : node.private_slot_bytes) bytes += slot;
  return node.forward.seconds / static_cast<double>(std::max<std::int64_t>(bytes, 1));
}

StageSolver selective_policy() {
  return make_policy("selective", "run nodes again that are cheap for their bytes, keep the others",
                     selective);
}

}  // namespace garonne::plan
