// The fastest ways to lay a run out over a number of ranks: bounds first, estimates by blocks next,
// Programs by node for those that are left.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/grid/grid_candidate.hpp"
#include "plan/grid/grid_estimate.hpp"

namespace garonne::plan {

// What Programs of all stages, replayed together, come to.
struct GridOutcome {
  bool fits = false;
  std::int64_t needed_bytes = 0;  // the least that some plan of it needs, where it does not fit
  double seconds = 0;             // of a step; 0 where Programs are too large
  double bubble_seconds = 0;      // of it, the busiest stage computes nothing
  std::vector<std::int64_t> peak_bytes;  // by stage
  std::vector<std::string> plans;        // by stage
  bool passes_overlap = false;           // of two that the schedule lets, on some stage
  double inside_traffic = 0;   // bytes a step that some rank sends over links inside its node
  double between_traffic = 0;  // over links that leave it
  // Of the busiest stage: the largest is what binds.
  std::vector<std::pair<std::string, double>> parts;  // name, seconds
};

struct RankedGrid {
  GridCandidate candidate;
  GridBounds bounds;
  GridEstimate estimate;
  GridOutcome outcome;
  bool closely = false;  // the outcome is of a closer plan
};

// A candidate that `plan` refused. What cannot be planned cannot be run either.
struct UnplannedGrid {
  GridCandidate candidate;
  std::string reason;
};

// Makes Programs of a candidate. One that takes `useless_seconds` or longer is of no use any more,
// and may be said to fit where it does not; its seconds are said in any case.
using PlanOfGrid = std::function<GridOutcome(const GridCandidate&, double useless_seconds)>;

struct GridSearchOptions {
  int best = 10;            // so many are wanted
  bool exhaustive = false;  // plan every candidate by node, whatever its bounds
  // Else candidates are planned until they have so many micro-batches together, and at least
  // until so many layouts that fit were found, or four times as many micro-batches and one.
  std::int64_t most_micro_batches = 2'000;
  std::size_t least_layouts = 12;
  // So many that may come next are planned at the same time, in threads: the answer is the same.
  int at_once = 1;
  // Plans a candidate with more ways to fit, which takes longer, as with tiers below the device; no
  // function where there are none. Asked about those that may be the fastest by their bounds: up to
  // `most_closely` of the best, and as many that do not fit otherwise, those first for which bounds
  // and what of their bytes is beyond the budget, at `seconds_per_byte_beyond`, are the least;
  // about all that were planned or are too large where `exhaustive`.
  PlanOfGrid closely;
  double seconds_per_byte_beyond = 0;
  std::size_t most_closely = 4;
  std::function<void(std::int64_t done, std::int64_t total, const std::string& what)> progress;
};

struct GridSearch {
  // Fastest first; of those that differ in ZeRO only, the fastest, and of those that differ in the
  // schedule only and take equally long, the one that holds least.
  std::vector<RankedGrid> best;
  std::int64_t candidates = 0;
  std::int64_t refused = 0;              // the model or the schedule cannot be had like that
  UnplannedGrid first_refused;           // where `refused` is not 0
  std::int64_t too_large = 0;            // bounds or estimates say that no plan fits
  std::int64_t planned = 0;              // by node
  std::int64_t closely_planned = 0;      // of all
  std::vector<UnplannedGrid> unplanned;  // in the order in which they were tried
  // No other candidate that can be planned is faster: each was planned, or cannot be by its bounds.
  // Not where candidates are planned closely, unless all were.
  bool proven = false;
  // Where nothing fits: the candidate that needs least; none of those that were tried can be
  // planned where it needs no bytes.
  RankedGrid leanest;
};

// `plan`: an equal candidate always gets an equal answer but for that, so that the
// search is a function of its arguments. Never faster than the estimator's bounds. It throws
// ConfigError where the candidate cannot be planned, which leaves that one out. Where several are
// planned at once, threads call it at the same time, also for candidates that turn out not to
// matter.
GridSearch search_grids(const std::vector<GridCandidate>& candidates, GridEstimator& estimator,
                        std::int64_t budget_bytes, const PlanOfGrid& plan,
                        const GridSearchOptions& options);

}  // namespace garonne::plan
