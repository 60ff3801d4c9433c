// A wait of a hand-made Program.
#pragma once

#include <utility>
#include <vector>

#include "plan/program/program.hpp"

namespace garonne::plan::test {

// For instruction `number`.
inline Instruction wait_for(int number, std::vector<int> frees = {}) {
  Instruction wait;
  wait.operation = Operation::Wait;
  wait.completes = number;
  wait.frees = std::move(frees);
  return wait;
}

}  // namespace garonne::plan::test
