// What a Program is made for.
#pragma once

#include <string>

#include "plan/model/model_graph.hpp"

namespace garonne::plan {

// Hash of everything in the graph but what was measured: equal for the same stage of the same model
// at the same sizes, whatever the machine.
std::string model_hash(const ModelGraph& graph);

}  // namespace garonne::plan
