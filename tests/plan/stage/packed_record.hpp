// A record kind as an exercise: the private slots of a node packed into one of half the bytes, or
// what it pins where it has no slots. Packing takes time, unpacking more; no bit is lost.
#pragma once

#include "plan/model/model_graph.hpp"

namespace garonne::plan::test {

// The way to be kept, for a node of the graph.
KeepOption packed_record(const ModelGraph& graph, const NodeSpec& node);

// Every node that keeps something can be kept that way, too.
ModelGraph with_packed_records(ModelGraph graph);

}  // namespace garonne::plan::test
