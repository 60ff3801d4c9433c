// Which nodes are the core of attention.
#pragma once

namespace garonne::plan {

struct NodeSpec;

// From queries, keys and values to weighted values, whatever heads share and whatever is dropped:
// what selective recomputation runs again, and what other software has scores of in memory.
bool is_attention_core(const NodeSpec& node);

}  // namespace garonne::plan
