#include "plan/step/launches.hpp"

#include <algorithm>

namespace garonne::plan {
namespace {

// That the host puts on a lane, copies and collectives included. Passes of nodes have theirs from
// the nodes, where that is none, too; the parts of divided ones are one each.
int kernels_of(const Instruction& instruction) {
  const bool pass = is_forward(instruction.operation) || is_backward(instruction.operation);
  if (pass && instruction.arguments.exchanged < 0) return 0;
  switch (instruction.operation) {
    case Operation::Wait:
      return 0;
    case Operation::SumSquares:
      return std::max(1, static_cast<int>(instruction.reads.size()));
    case Operation::Update:
      return std::max(1, static_cast<int>(instruction.arguments.pieces.size()));
    default:
      return 1;
  }
}

bool computes(const Instruction& instruction) {
  return instruction.lane == Lane::Compute && !instruction.channel &&
         instruction.operation != Operation::Load && instruction.operation != Operation::Report;
}

}  // namespace

void add_launches(Program& program, const KernelSeconds& kernels) {
  if (kernels.least <= 0 && kernels.issue <= 0) return;
  for (Instruction& instruction : program.instructions) {
    const int count = kernels_of(instruction);
    if (count == 0) continue;
    instruction.issue_seconds = count * kernels.issue;
    if (computes(instruction))
      instruction.seconds = std::max(instruction.seconds, count * kernels.least);
  }
}

}  // namespace garonne::plan
