// A search that makes a legal sequence of a chain faster within the budget, window by window.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/chain/chain.hpp"

namespace garonne::plan {

// Never slower than what is given. Between two states of the sequence that only some blocks
// separate, the fastest way is looked for among all legal ones; deterministic, and bounded by
// `most_states`.
std::vector<ChainOperation> improve_chain_sequence(const Chain& chain,
                                                   std::vector<ChainOperation> operations,
                                                   std::int64_t budget_bytes,
                                                   std::int64_t most_states);

}  // namespace garonne::plan
