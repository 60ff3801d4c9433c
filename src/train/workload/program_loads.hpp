// What a Program loads.
#pragma once

#include <string>
#include <vector>

#include "plan/program/program.hpp"

namespace garonne::train {

// Empty where the Program loads each of its micro-batches once; else what it does, for people.
std::string fault_of_loads(const plan::Program& program);

// The micro-batches of a step in the order in which the Program loads them. Throws InternalError
// where fault_of_loads() has something to say.
std::vector<int> loaded_micro_batches(const plan::Program& program);

}  // namespace garonne::train
