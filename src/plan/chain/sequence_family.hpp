// Solvers that try a fixed set of sequences and take the fastest that fits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/chain/chain_solver.hpp"

namespace garonne::plan {

// The n-th sequence of a chain; there are as many as the chain has blocks, or one.
struct SequenceFamily {
  bool one = false;
  std::function<std::vector<ChainOperation>(const Chain&, int n)> make;
};

ChainSolver make_family_solver(std::string name, std::string help, SequenceFamily family);

// Blocks in `segments` runs, equal in number as far as possible: the inputs of runs are stored, the
// last run is kept with option 0 at once, the others when their backward comes.
std::vector<ChainOperation> segmented_sequence(const Chain& chain, int segments);

}  // namespace garonne::plan
