// What no legal sequence of a chain with bandwidths can beat.
#pragma once

#include <cstdint>

#include "plan/chain/chain.hpp"

namespace garonne::plan {

// Seconds of every legal sequence within the budget are at least this. While block l runs backward,
// each block before it is kept on the device, which takes bytes, is kept below, which takes both
// links their time, one before and one behind, or is run once more behind. What comes before takes
// as long as its passes and as long as what has gone out, what comes behind likewise: by prices
// between the two, for each l, the linear relaxation of a knapsack. O(L² K log(LK)) for each price.
// The chain has links.
double chain_bandwidth_bound_seconds(const Chain& chain, std::int64_t budget_bytes);

}  // namespace garonne::plan
