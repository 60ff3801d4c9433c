// What the tests of the planner share: small models without tensors.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "plan/model/model_graph.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan::test {

// Blocks of equal nodes, each pinning its input and keeping something private; then the loss.
ModelGraph chain(int blocks, int nodes_a_block);

// Any legal model: residual fan-out, aliasing gradients, additions in place, pinned values and
// outputs, private slots, one parameter used by two nodes. The same for the same seed.
ModelGraph random_graph(unsigned seed);

// The first `nodes` of them without gradients: no backward, nothing kept. Parameters that no other
// node uses go to the next one that has a backward.
ModelGraph without_gradients(ModelGraph graph, int nodes);

// Each value and each record kept or made again, a record in any of the node's exact ways.
Fates random_fates(const ModelGraph& graph, std::mt19937& random);

// Every schedule of every policy, with the policy's name.
std::vector<std::pair<std::string, NodeSchedule>> policy_schedules(const ModelGraph& graph);
// The one schedule of "keep-all" or "full".
NodeSchedule schedule_of(const ModelGraph& graph, const std::string& policy);

// All of the cases, of which the quick suite takes some: GARONNE_WHOLE_SWEEPS is set.
bool whole_sweep();

// A step of `micro_batches` on each of `ranks` data ranks.
StepShape step_shape(int micro_batches, int ranks, std::int64_t bucket_bytes);

}  // namespace garonne::plan::test
