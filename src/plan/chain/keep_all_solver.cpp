#include "plan/chain/sequence_family.hpp"

namespace garonne::plan {

std::vector<ChainOperation> keep_all_sequence(const Chain& chain) {
  return segmented_sequence(chain, 1);
}

ChainSolver keep_all_solver() {
  return make_family_solver(
      "keep-all", "keep every block with option 0",
      {true, [](const Chain& chain, int) { return keep_all_sequence(chain); }});
}

}  // namespace garonne::plan
