// What budgets cost: the planner's Programs for several budgets, and the uniform and selective
// policies that fit them, run step by step in turn and timed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/device.hpp"
#include "dist/session.hpp"

namespace garonne::train {

struct LaneSeconds {
  double busy = 0;
  double waited = 0;  // by Compute, for what it copied
};

// Of several ranks bytes and seconds are those of the rank that has most.
struct BudgetRow {
  // Of the bytes that keep-all needs beyond the static ones; below 0 where the budget is below
  // those.
  double share = 1;
  std::int64_t budget_bytes = 0;
  std::string wanted;  // "auto" or the policy
  std::string plan;    // what was chosen; "first | second" where stages have different ones
  bool fits = false;   // everything below is empty where nothing does
  // What was measured is empty where the plan is more than this machine has.
  bool runs = false;
  bool one_at_a_time = false;  // all rows alike: no two ran in turns
  std::int64_t planned_peak_bytes = 0;
  std::int64_t peak_bytes = 0;
  double planned_seconds = 0;
  double step_seconds = 0;  // median
  // Of the time of keep-all: the median over the turns; of the medians where they did not run in
  // turns, and of keep-all's planned time where that did not run.
  double added_share = 0;
  double planned_added = 0;     // of the planned time of keep-all
  double planning_seconds = 0;  // what the planner took
  // Where there are tiers below the device.
  std::int64_t host_bytes = 0;        // the most at once, as planned and measured
  std::int64_t disk_bytes = 0;        // the same
  std::int64_t copied_out_bytes = 0;  // in a step, and as many back
  // Of copies, in the last step, of the rank that copies longest.
  std::map<Lane, LaneSeconds> lanes;
};

struct BudgetOptions {
  std::vector<double> shares;
  std::vector<std::int64_t> budgets;  // further ones, in bytes
  std::int64_t steps = 30;
  bool policies = true;
  // In place of policies: the best that only runs again, the best that only moves, and the best of
  // both.
  bool offloads = false;
  // Hold one plan at a time, also where there is room for all side by side.
  bool one_at_a_time = false;
  // Of copies between an emulated device and its host, bytes a second each way; 0: as fast as they
  // are.
  double link = 0;
};

// Rows: keep-all first, then by share and budget "auto" and the policies, or "recompute", "offload"
// and "both". Each rank has the budget; stages of a pipeline are those of memory.budget.
// ConfigError where there is no tier to move to. Every turn runs one step of each, in
// an order that alternates; where there is no room for all plans side by side, one runs after the
// other. Collective over all ranks.
std::vector<BudgetRow> run_budget_benchmark(const RunConfig& config, const BudgetOptions& options,
                                            dist::Session& session);

}  // namespace garonne::train
