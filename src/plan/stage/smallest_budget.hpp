// The smallest budget of a stage: what the leanest Program takes that policies and solvers find
// when all they know is what nodes declare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/model/communication_shape.hpp"
#include "plan/stage/stage_solver.hpp"

namespace garonne::plan {

// The leanest schedules of a stage, and which of them needs least.
struct LeanPlans {
  struct Entry {
    const StageSolver* solver = nullptr;
    StepSchedule schedule;
  };
  std::vector<Entry> entries;
  std::int64_t bytes = 0;  // the smallest budget
  std::size_t entry = 0;   // the one that needs it
  std::size_t shape = 0;   // in this one of communication_shapes()
};

// Every pass takes as long as any other; what hands over computes nothing.
ModelGraph with_equal_seconds(ModelGraph model);

// Of memory.plan = `plan`. Looks at bytes only, neither at seconds nor links, so that it is the
// same before and after a profile as long as `declared` has the transient bytes that nodes
// declare. Where no node takes more than it declares, the Program of that entry fits `bytes`.
// Throws ConfigError (memory.plan) for an unknown name and for what does not apply to the model.
LeanPlans find_lean_plans(const ModelGraph& declared, const StepShape& step,
                          const std::string& plan, TextCache* cache = nullptr);

// Whether what keeps everything fits in some shape. Then no smaller number than `budget_bytes` need
// be known: find_lean_plans() finds one at most as large for "auto" and "keep-all".
bool keeping_everything_fits(const ModelGraph& declared, const StepShape& step,
                             std::int64_t budget_bytes);

// PlanError that says what to do where `needed_bytes` are more than `budget_bytes`, and `also`.
void expect_budget(std::int64_t needed_bytes, std::int64_t budget_bytes, const std::string& plan,
                   const std::string& also = "");

}  // namespace garonne::plan
