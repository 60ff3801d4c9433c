#include "plan/stage/policy.hpp"

#include <algorithm>
#include <set>

namespace garonne::plan {
namespace {

std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}

std::vector<NodeSchedule> keep_all(const ModelGraph& graph) {
  return {recompute_on_demand(graph, keep_everything(graph))};
}

// The last block's backward follows its forward at once: dropping its records saves nothing.
RecomputeChoice all_but_the_last(const ModelGraph& graph) {
  RecomputeChoice choice(index(graph.blocks()), true);
  if (!choice.empty()) choice.back() = false;
  return choice;
}

std::vector<NodeSchedule> full(const ModelGraph& graph) {
  return {recompute_blocks(graph, all_but_the_last(graph))};
}

// The first k blocks are recomputed: they hold their records longest. Megatron's method "block"
// counts from the same end.
std::vector<NodeSchedule> uniform(const ModelGraph& graph) {
  std::vector<NodeSchedule> family;
  for (int blocks = 1; blocks < graph.blocks(); ++blocks) {
    RecomputeChoice choice(index(graph.blocks()), false);
    std::fill(choice.begin(), choice.begin() + blocks, true);
    family.push_back(recompute_blocks(graph, choice));
  }
  return family;
}

// What a value or record costs to make again, against what it occupies.
double seconds_per_byte(const ModelGraph& graph, const NodeSpec& node) {
  std::int64_t bytes = graph.values[index(node.output)].bytes;
  for (const std::int64_t slot : node.private_slot_bytes) bytes += slot;
  return node.forward.seconds / static_cast<double>(std::max<std::int64_t>(bytes, 1));
}

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
    KeptSet kept = keep_everything(graph);
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      const NodeSpec& node = graph.nodes[n];
      const bool again = seconds_per_byte(graph, node) <= threshold && node.output != graph.loss;
      kept.values[index(node.output)] = !again;
      kept.records[n] = !again;
    }
    // Else one block's recomputation would reach into the one before.
    for (const int value : leaving) kept.values[index(value)] = true;
    family.push_back(recompute_on_demand(graph, kept));
  }
  return family;
}

}  // namespace

const std::vector<Policy>& policies() {
  static const std::vector<Policy> registry = {
      {"keep-all", "keep every record from forward to backward: fastest, most memory", keep_all},
      {"selective", "run nodes again that are cheap for their bytes, keep the others", selective},
      {"uniform", "run as few blocks again as the budget asks for", uniform},
      {"full", "keep block inputs only and run each block's forward again before its backward",
       full},
  };
  return registry;
}

}  // namespace garonne::plan
