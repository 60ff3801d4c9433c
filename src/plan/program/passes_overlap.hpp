// Passes of two micro-batches of which one computes while the other communicates.
#pragma once

#include "plan/program/program.hpp"

namespace garonne::plan {

// Whether it is the collective of a pass that is divided, beside which Compute goes on.
inline bool is_overlapped_collective(const Instruction& instruction) {
  return instruction.lane != Lane::Compute && instruction.channel &&
         instruction.arguments.exchanged >= 0;
}

// Whether there are such.
bool passes_overlap(const Program& program);

}  // namespace garonne::plan
