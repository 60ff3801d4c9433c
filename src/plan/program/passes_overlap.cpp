#include "plan/program/passes_overlap.hpp"

#include <algorithm>

namespace garonne::plan {

bool passes_overlap(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     is_overlapped_collective);
}

}  // namespace garonne::plan
