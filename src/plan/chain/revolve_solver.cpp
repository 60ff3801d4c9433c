// The optimal schedule of equal blocks with a number of equal checkpoints. Source: Griewank,
// Walther, "Algorithm 799: revolve" (ACM TOMS 2000). Blocks that differ are treated as if they were
// equal, and what comes of it is replayed as it is.
#include <algorithm>

#include "plan/chain/sequence_family.hpp"

namespace garonne::plan {
namespace {

constexpr std::int64_t enough = 1'000'000;

// Steps that `stored` checkpoints can reverse with no step run forward more than `repeats` times:
// the binomial of stored + repeats over stored, cut off at `enough`.
std::int64_t reach(std::int64_t stored, std::int64_t repeats) {
  std::int64_t product = 1;
  const std::int64_t few = std::min(stored, repeats);
  for (std::int64_t n = 1; n <= few; ++n) {
    product = product * (stored + repeats - few + n) / n;
    if (product > enough) return enough;
  }
  return product;
}

class Revolve {
 public:
  explicit Revolve(std::vector<ChainOperation>& operations) : operations_(operations) {}

  // `stored` counts the checkpoint at `first`, which is live already.
  void reverse(int first, int last, int stored) {
    while (first < last) {
      const int steps = last - first + 1;
      int advance = steps - 1;
      if (stored > 1) {
        std::int64_t repeats = 1;
        while (reach(stored, repeats) < steps) ++repeats;
        advance = static_cast<int>(std::max<std::int64_t>(
            1, std::min(reach(stored, repeats - 1), steps - reach(stored - 1, repeats - 1))));
      }
      operations_.push_back({ChainOperationKind::ForwardCheckpoint, first});
      for (int block = first + 1; block < first + advance; ++block)
        operations_.push_back({ChainOperationKind::ForwardDiscard, block});
      reverse(first + advance, last, std::max(1, stored - 1));
      last = first + advance - 1;
    }
    operations_.push_back({ChainOperationKind::ForwardKeep, first, 0});
    operations_.push_back({ChainOperationKind::Backward, first});
  }

 private:
  std::vector<ChainOperation>& operations_;
};

}  // namespace

ChainSolver revolve_solver() {
  return make_family_solver(
      "revolve",
      "binomial checkpointing, optimal for equal blocks; others are treated as if they were equal",
      {false, [](const Chain& chain, int stored) {
         std::vector<ChainOperation> operations;
         Revolve(operations).reverse(0, static_cast<int>(chain.blocks.size()) - 1, stored);
         return operations;
       }});
}

}  // namespace garonne::plan
