// Which parameters take no weight decay by the words of the run file (optimizer.no_decay).
#pragma once

#include <string>
#include <vector>

#include "plan/model/model_graph.hpp"

namespace garonne::train {

// `parts`: of names, comma-separated; a parameter whose name has one of them in it does not decay.
// ConfigError (optimizer.no_decay): an empty part, or one that no name has, with those that are
// near.
void apply_no_decay(const std::string& parts, std::vector<plan::ParameterSpec>& parameters);

}  // namespace garonne::train
