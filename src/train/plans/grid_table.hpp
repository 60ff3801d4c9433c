// The grid as it is shown at start: where each rank is, who talks with whom, and the memory of each
// rank at its planned peak.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/grid.hpp"
#include "dist/session.hpp"
#include "train/plans/saving_plan.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// What one rank has to say.
struct GridRow {
  std::string host;
  int local_rank = 0;  // among the ranks of its host
  std::string device;  // "cpu"
  MemoryTable memory;
};

// Up to so many it is said of each where it is.
inline constexpr int most_ranks_one_by_one = 16;

// `rows` by rank. The groups of every axis that has more than one member, where each rank is unless
// there are many, and the memory of ranks, of which those that hold the same share a line. At most
// 120 columns, of the two tables those.
std::string format_grid_table(const Grid& grid, const std::vector<GridRow>& rows,
                              std::int64_t budget_bytes);

// The table of one rank alone, or that of the grid; empty on other ranks than the first.
// Collective.
std::string describe_memory(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                            const Saving& saving, dist::Session& session);

}  // namespace garonne::train
