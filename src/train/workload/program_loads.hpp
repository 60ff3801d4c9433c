// What a Program loads.
#pragma once

#include <string>
#include <vector>

#include "exec/executor.hpp"
#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::train {

// Empty where the Program loads each of its micro-batches once; else what it does, for people.
std::string fault_of_loads(const plan::Program& program);

// The micro-batches of a step in the order in which the Program loads them. Throws InternalError
// where fault_of_loads() has something to say.
std::vector<int> loaded_micro_batches(const plan::Program& program);

// Names of the values of `graph`, which the Program is of, that it loads.
std::vector<std::string> loaded_names(const plan::Program& program, const plan::ModelGraph& graph);

// What a Program can run with in the place of a micro-batch that cannot be read: zeros for whole
// numbers, NaN for others, and no samples.
exec::HostBatch blank_batch(const plan::Program& program, const plan::ModelGraph& graph,
                            int micro_batch);

}  // namespace garonne::train
