// When each instruction of a Program runs, as replay of one rank alone has it.
#pragma once

#include <vector>

#include "plan/program/program.hpp"

namespace garonne::plan {

// On its lane, in seconds from the start of the step. A Wait lasts until what it waits for has
// ended.
struct Span {
  double begin = 0;
  double end = 0;
};

// One an instruction. Throws ReplayError for an illegal Program.
std::vector<Span> spans_of(const Program& program);

}  // namespace garonne::plan
