// Where what lasts from step to step is between steps.
#pragma once

#include <vector>

#include "plan/program/program.hpp"

namespace garonne::plan {

// By buffer: the lasting one whose content it has. Itself where it lasts; of a buffer that copies
// bring from a lasting one of another tier, that one; -1 of all others. The Program need not be
// legal.
std::vector<int> lasting_homes(const Program& program);

}  // namespace garonne::plan
