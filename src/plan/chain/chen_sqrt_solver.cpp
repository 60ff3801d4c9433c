// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost" (2016).
#include <cmath>

#include "plan/chain/sequence_family.hpp"

namespace garonne::plan {

ChainSolver chen_sqrt_solver() {
  return make_family_solver(
      "chen-sqrt", "segments as many as the square root of the number of blocks",
      {true, [](const Chain& chain, int) {
         const auto root = std::sqrt(static_cast<double>(chain.blocks.size()));
         return segmented_sequence(chain, static_cast<int>(std::ceil(root)));
       }});
}

}  // namespace garonne::plan
