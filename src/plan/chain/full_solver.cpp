#include "plan/chain/sequence_family.hpp"

namespace garonne::plan {

ChainSolver full_solver() {
  return make_family_solver("full", "store every block's input, run every block but the last again",
                            {true, [](const Chain& chain, int) {
                               return segmented_sequence(chain,
                                                         static_cast<int>(chain.blocks.size()));
                             }});
}

}  // namespace garonne::plan
