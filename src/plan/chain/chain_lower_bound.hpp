// What no legal sequence of a chain can beat, whatever class it is of.
#pragma once

#include <cstdint>

#include "plan/chain/chain.hpp"

namespace garonne::plan {

// Seconds of every legal sequence within the budget are at least this. Every block is kept once and
// run backward once; besides, while block l runs backward, each block before it is either kept,
// which takes bytes, or has been passed once more: for every l the linear relaxation of a knapsack
// with several choices an item. O(L² K log(LK)).
double chain_lower_bound_seconds(const Chain& chain, std::int64_t budget_bytes);

// Bytes without which no sequence is legal.
std::int64_t chain_lower_bound_bytes(const Chain& chain);

}  // namespace garonne::plan
