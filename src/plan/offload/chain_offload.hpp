// Answers of solvers of chains that move something (pofo, offload-greedy), for the micro-batches of
// a step: a schedule, what of it is below at the turn, where the first backward of the micro-batch
// begins, and whose parameters are below between their uses. Copies of a chain stand between passes
// of blocks; those of a Program stand where its own bytes want them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plan/offload/offload.hpp"
#include "plan/offload/offload_search.hpp"
#include "plan/stage/stage_solver.hpp"

namespace garonne::plan {

// Of one micro-batch, what is below at its turn.
struct BelowAtTurn {
  std::vector<bool> values;   // by value of the model
  std::vector<bool> records;  // by node
};

struct StepWithCopies {
  StepSchedule schedule;
  std::vector<BelowAtTurn> below;  // by schedule
  // By node: its parameters are below in some time between two uses. Empty: none's.
  std::vector<bool> weights = {};
};

// All that it is given outlives it.
class CopyingStepPlanner {
 public:
  // Throws ConfigError (memory.plan) where a micro-batch is no chain of blocks.
  // `least_weight_bytes`: of a parameter that may move, which none does that passes gather; none:
  // all stay.
  CopyingStepPlanner(const ChainSolver& solver, const ModelGraph& model, const StepShape& step,
                     TextCache* cache, std::optional<std::int64_t> least_weight_bytes = {});

  // Of a chain that may have `share` of what `budget_bytes` of the device, static bytes included,
  // leave to one micro-batch. None where that is too little for the solver, or takes too many
  // passes.
  std::optional<StepWithCopies> within(std::int64_t budget_bytes, double share,
                                       const TierLinks& links) const;

  // The passes that need least where all is below that is idle at the turn. Throws ConfigError
  // (memory.plan) where they are too many.
  StepSchedule leanest() const;

 private:
  StepSchedule of_step(std::vector<NodeSchedule> schedules) const;

  const ChainSolver& solver_;
  const int micro_batches_;
  std::vector<StageProblem> problems_;
  std::int64_t weight_bytes_ = 0;  // of all blocks
};

// Of the Program of `step`, which is of `model`: the idle times in which the turn of a micro-batch
// lies, of what `step` has below then.
std::vector<IdleTime> idle_times_below(const Program& program, const ModelGraph& model,
                                       const StepWithCopies& step);

// Of the Program: buffers of parameters that passes of the nodes read, as they last.
std::vector<int> weights_below(const Program& program, const StepWithCopies& step,
                               std::int64_t least_bytes);

// Of all values and records.
std::vector<IdleTime> idle_times_at_turns(const Program& program);

}  // namespace garonne::plan
