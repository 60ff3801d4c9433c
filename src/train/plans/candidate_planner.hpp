// Programs of candidate grids of a search, and the models that their estimates are made of.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "plan/grid/grid_search.hpp"
#include "plan/program/program.hpp"
#include "train/plans/grid_search.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// Programs of all stages of a candidate, replayed together. Threads may plan candidates at the same
// time. `wish` outlives it.
class CandidatePlanner {
 public:
  explicit CandidatePlanner(const GridSearchRequest& wish) : wish_(wish) {}

  // Whether all seconds of nodes of the candidate were measured.
  bool is_measured(const plan::GridCandidate& candidate) const;

  // By blocks, or by memory.plan where that names a way; an equal candidate gets an equal answer.
  // Whether it also fits as its stages are declared is asked where it takes less than
  // `useless_seconds` only. Throws ConfigError where it cannot be planned.
  plan::GridOutcome plan(const plan::GridCandidate& candidate,
                         double useless_seconds = std::numeric_limits<double>::infinity());
  // The same node by node, which takes longer and finds what blocks do not. Throws PlanError with
  // the smallest budget of the candidate.
  plan::GridOutcome plan_by_node(const plan::GridCandidate& candidate,
                                 Effort effort = Effort::All) const;
  // The same, with the smallest budget in the outcome where that is more than there is.
  plan::GridOutcome plan_closely(const plan::GridCandidate& candidate, Effort effort) const;

 private:
  struct MeasuredSetup {
    Setup whole;
    bool measured = false;
  };
  // By blocks.
  struct StageByBlocks {
    plan::Program program;          // none where the stage does not fit
    std::int64_t needed_bytes = 0;  // 0: it fits
    bool as_declared = true;        // its seconds cut it as it is declared
  };
  MeasuredSetup setup_of(const plan::GridCandidate& candidate) const;
  StageByBlocks plan_stage(const Setup& whole, const plan::GridLinks& links, int stage);
  std::int64_t floor_beyond_budget(const Setup& whole, int stage) const;
  static void check_evaluation(const Setup& setup, std::int64_t budget_bytes);
  plan::GridOutcome replay(const plan::GridLinks& links, std::vector<plan::Program> programs) const;

  const GridSearchRequest& wish_;
  std::map<std::string, int> known_;  // by kind of stage: the index of its family
  std::mutex mutex_;                  // of it
};

// Whether memory.plan of a setup names how grids are planned.
bool names_plan(const Setup& setup);
// Whether it does, and may have something below the device: bytes of estimates bound nothing then.
bool may_leave_device(const Setup& setup);

// Of the model alone, on one data rank and in one stage. Throws ConfigError.
Setup setup_of_model(const GridSearchRequest& wish, int tensor, bool sequence_parallel,
                     std::int64_t micro_batch);
// Costs of its blocks; `wish` outlives it.
plan::BlocksOf blocks_of(const GridSearchRequest& wish);
// `model`: setup_of_model on one rank.
plan::GridLimits limits_of(const GridSearchRequest& wish, const Setup& model);

}  // namespace garonne::train
