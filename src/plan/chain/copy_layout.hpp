// Puts the copies of what is to be below into a sequence of a chain: out as soon as it is made,
// waits where the room is needed, back as early as there is room, so that copies have as much time
// as there is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/chain/chain_gaps.hpp"

namespace garonne::plan {

struct CopiedSequence {
  std::vector<ChainOperation> operations;
  double seconds = 0;  // by replay
};

// `operations` is legal and has no copies. Nothing where it is over the budget with all of `gaps`
// away. A gap that nothing has to leave in stays.
std::optional<CopiedSequence> lay_out_copies(const Chain& chain,
                                             const std::vector<ChainOperation>& operations,
                                             const std::vector<ChainGap>& gaps,
                                             std::int64_t budget_bytes);

}  // namespace garonne::plan
