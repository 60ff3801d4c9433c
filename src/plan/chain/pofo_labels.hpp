// `pofo`: what is kept, what is made again and which inputs of blocks are below, chosen together.
// Source: Beaumont, Eyraud-Dubois, Shilova: "Efficient combination of rematerialization and
// offloading for training DNNs" (NeurIPS 2021). A table over slots of memory becomes lists of
// labels none of which is better than another in everything, exact in bytes.
//
// A block is kept with one of its options, or passed with those behind it as a stretch that is run
// again as rotor has it. The input of either stays or goes below. For the choice copies are a fluid
// that leaves and comes at the rates of the links; the layout then has them whole.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/chain/chain_gaps.hpp"
#include "plan/chain/rotor_table.hpp"

namespace garonne::plan {

// A sequence without copies, and what of it is below when the backward begins.
struct PofoSkeleton {
  std::vector<ChainOperation> operations;
  std::vector<ChainGap> gaps;
};

struct PofoChoice {
  std::vector<PofoSkeleton> skeletons;  // the fastest first
  bool complete = true;                 // no list of labels was cut
};

// At most `most_skeletons` that take less than `upper_seconds` as fluid. The chain has links.
PofoChoice choose_pofo(const Chain& chain, std::int64_t budget_bytes, const RotorTable& rotor,
                       double upper_seconds, std::size_t most_skeletons);

// The one that needs least where all inputs are below, and what that is.
struct PofoLeanest {
  std::int64_t bytes = 0;
  PofoSkeleton skeleton;
};
PofoLeanest leanest_pofo(const Chain& chain);

}  // namespace garonne::plan
