// Which parameters take how much weight decay by the words of the run file (optimizer.no_decay and
// optimizer.weight_decays).
#pragma once

#include <string>
#include <vector>

#include "plan/model/model_graph.hpp"

namespace garonne::train {

// `parts`: of names, comma-separated; a parameter whose name has one of them in it does not decay.
// ConfigError (optimizer.no_decay): an empty part, or one that no name has, with those that are
// near.
void apply_no_decay(const std::string& parts, std::vector<plan::ParameterSpec>& parameters);

// `groups`: "part=number" of names, comma-separated; a parameter whose name has one of the parts in
// it decays by the number of the first, whatever its shape, but not one that `no_decay` names.
// ConfigError (optimizer.weight_decays): what is no such list, and a part that decides for no
// parameter.
void apply_weight_decays(const std::string& groups, const std::string& no_decay,
                         std::vector<plan::ParameterSpec>& parameters);

}  // namespace garonne::train
