// What each micro-batch of each chunk of a pipeline keeps, for a schedule that is given: an integer
// program, after ELF (2025).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/grid/block_table.hpp"
#include "plan/pipeline/schedule.hpp"
#include "plan/pipeline/simulation.hpp"

namespace garonne::plan {

// One way to keep what one micro-batch of a chunk needs for its backward.
struct ChunkOption {
  std::int64_t saved_bytes = 0;   // from forward to backward
  std::int64_t remade_bytes = 0;  // in its backward besides
  double again_seconds = 0;       // that its backward takes longer

  bool operator==(const ChunkOption&) const = default;
};
// All combinations of the options of blocks [first, last) that no other beats in everything, by
// seconds; where there are very many, those of BlockFamily.
std::vector<ChunkOption> chunk_options(const std::vector<BlockCost>& blocks, int first, int last);

struct RecomputationProblem {
  PipelineSchedule schedule;
  PipelineCosts costs;                            // where nothing is run again; no overlaps
  std::vector<std::vector<ChunkOption>> options;  // by chunk, as costs
  // By device: what saved and remade bytes may come to together, at any time; and seconds from its
  // last operation to where the step is done.
  std::vector<std::int64_t> room_bytes;
  std::vector<double> after_seconds;
};

struct Recomputation {
  bool found = false;   // something fits
  bool proven = false;  // nothing is faster; or nothing fits
  double seconds = 0;
  std::vector<std::vector<int>> options;  // by chunk and micro-batch
};

// Of a choice of options.
double recomputation_seconds(const RecomputationProblem& problem,
                             const std::vector<std::vector<int>>& options);
bool recomputation_fits(const RecomputationProblem& problem,
                        const std::vector<std::vector<int>>& options);

// The fastest choice; not proven after so many nodes of branch and bound. Throws NotBuiltError in a
// build without HiGHS.
Recomputation solve_recomputation(const RecomputationProblem& problem, std::int64_t most_nodes);

}  // namespace garonne::plan
