// Sizes that follow from several keys together, checked before anything is made of them.
#pragma once

#include "base/config.hpp"
#include "plan/model/model_graph.hpp"
#include "train/workload/data_facts.hpp"

namespace garonne::train {

// Throws ConfigError naming the keys where parameters with their moments could pass 2^56 bytes or
// the values of a step 2^62, so that no sum of bytes overflows, or where the network would have
// more layers, over a rollout, than can be planned.
void check_text_sizes(const RunConfig& config, const DataFacts& facts);
void check_field_sizes(const RunConfig& config, const DataFacts& facts);

// A plan runs every node once a micro-batch, and holds several instructions for each; throws
// ConfigError where they would take gigabytes.
void check_planned_nodes(const RunConfig& config, const plan::ModelGraph& graph,
                         std::int64_t micro_batches);

}  // namespace garonne::train
