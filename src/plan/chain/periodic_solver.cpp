#include "plan/chain/sequence_family.hpp"

namespace garonne::plan {

ChainSolver periodic_solver() {
  return make_family_solver(
      "periodic", "store the input of every n-th block, with the best number of segments",
      {false, [](const Chain& chain, int n) { return segmented_sequence(chain, n); }});
}

}  // namespace garonne::plan
