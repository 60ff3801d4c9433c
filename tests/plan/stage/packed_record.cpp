#include "plan/stage/packed_record.hpp"

#include "base/bytes.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {

KeepOption packed_record(const ModelGraph& graph, const NodeSpec& node) {
  KeepOption packed;
  packed.name = "packed";
  std::int64_t bytes = 0;
  for (const std::int64_t slot : node.private_slot_bytes) bytes += slot;
  if (bytes > 0) {
    packed.pinned_values = node.pinned_values;
  } else {
    for (const int value : node.pinned_values) bytes += graph.values[as_index(value)].bytes;
  }
  packed.private_slot_bytes = {round_up(bytes / 2, cpu_allocation_granularity)};
  packed.forward_keep = node.forward_keep;
  packed.forward_keep.seconds += 0.0625;
  packed.forward_keep.transient_bytes += 64;
  packed.backward = node.backward;
  packed.backward_weight = node.backward_weight;
  // The pass that unpacks.
  OperationCost& unpacks = node.splits_backward ? packed.backward_weight : packed.backward;
  unpacks.seconds += 0.125;
  unpacks.transient_bytes += 128;
  if (node.in_place_transient_bytes)
    packed.in_place_transient_bytes = *node.in_place_transient_bytes + 128;
  return packed;
}

ModelGraph with_packed_records(ModelGraph graph) {
  for (NodeSpec& node : graph.nodes) {
    const bool keeps = !node.pinned_values.empty() || !node.private_slot_bytes.empty();
    if (keeps) node.further_options.push_back(packed_record(graph, node));
  }
  return graph;
}

}  // namespace garonne::plan::test
