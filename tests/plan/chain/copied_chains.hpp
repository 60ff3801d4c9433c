// Chains with bandwidths and what the fastest sequence of them takes at each budget.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "plan/chain/chain.hpp"

namespace garonne::plan::test {

inline constexpr double no_plan = std::numeric_limits<double>::infinity();

// Values of one byte, saved bytes of two, forwards of one second, backwards of two.
Chain equal_blocks(int blocks);
// Four blocks: values 1, 2, 1, 2, 1; saved bytes 3, 2, 4, 2; forwards 1, 2, 1, 2; backwards 2, 3,
// 2, 3.
Chain mixed_blocks();
Chain with_links(Chain chain, double out_bytes_per_second, double in_bytes_per_second);

// What may be done to fit a budget.
enum class CopyTableMode { RecomputeOnly, OffloadOnly, Both, BothInTurn, RecordsOnly };

struct CopyTableRow {
  std::string name;
  Chain chain;
  CopyTableMode mode = CopyTableMode::Both;
  std::int64_t first_budget = 0;
  std::vector<double> seconds = {};  // at this and the following budgets
};
std::vector<CopyTableRow> copy_table();

// With bandwidths of its seed, in either direction its own, and weights where seed % 4 = 3.
Chain random_copied_chain(std::uint64_t seed, int blocks, int most_options);

}  // namespace garonne::plan::test
