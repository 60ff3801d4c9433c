// Which gaps of a sequence are spent below so that it is within a budget.
//
// Greedy and Greedy* of Beaumont, Eyraud-Dubois, Shilova, Zhao: "Weight offloading strategies for
// training large DNN models" (2022), whose selection is as if links took no time: as long as
// something is over the budget, what takes off most of it; each thing once, or as often as it has
// gaps, for the bytes that are copied. Beside weights, values and saved bytes are chosen among.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/chain/chain_gaps.hpp"

namespace garonne::plan {

enum class GapRule { Greedy, GreedyStar };

// Of the gaps of the sequence. Nothing where all together are not enough.
std::optional<std::vector<ChainGap>> choose_gaps(const Chain& chain,
                                                 const std::vector<ChainOperation>& operations,
                                                 const std::vector<ChainGap>& gaps,
                                                 std::int64_t budget_bytes, GapRule rule);

// What is live at least where all gaps are spent below.
std::int64_t bytes_without_gaps(const Chain& chain, const std::vector<ChainOperation>& operations);

}  // namespace garonne::plan
