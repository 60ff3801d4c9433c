// The search over all sequences with copies against figures that were computed apart from it, for
// chains that people can follow by hand.
#include "plan/chain/copy_search.hpp"

#include <gtest/gtest.h>

#include "plan/chain/chain_replay.hpp"
#include "plan/chain/copied_chains.hpp"

namespace garonne::plan::test {
namespace {

CopySearchOptions options_of(CopyTableMode mode) {
  CopySearchOptions options;
  options.recompute = mode != CopyTableMode::OffloadOnly && mode != CopyTableMode::RecordsOnly;
  options.move_values = mode != CopyTableMode::RecordsOnly;
  options.once = mode == CopyTableMode::RecordsOnly;
  options.one_direction = mode == CopyTableMode::BothInTurn;
  return options;
}

// Seconds of the fastest, replayed.
double fastest(const Chain& chain, std::int64_t budget, const CopySearchOptions& options) {
  const CopySearchAnswer answer = search_copies(chain, budget, options);
  EXPECT_TRUE(answer.complete);
  if (!answer.operations) return no_plan;
  const ChainReplay replay = replay_chain(chain, *answer.operations);
  EXPECT_LE(replay.peak_bytes, budget);
  EXPECT_NEAR(replay.seconds, answer.lower_bound_seconds, 1e-9);
  return replay.seconds;
}

TEST(CopySearch, FindsTheOptimaOfSmallChains) {
  int cells = 0;
  for (const CopyTableRow& row : copy_table()) {
    for (std::size_t k = 0; k < row.seconds.size(); ++k) {
      const std::int64_t budget = row.first_budget + static_cast<std::int64_t>(k);
      EXPECT_EQ(fastest(row.chain, budget, options_of(row.mode)), row.seconds[k])
          << row.name << ", budget " << budget;
      ++cells;
    }
  }
  EXPECT_GT(cells, 150);
}

}  // namespace
}  // namespace garonne::plan::test
