// The fastest Program of one stage that fits a budget: tries every applicable policy and solver on
// the stage's micro-batches and replays what they answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/generator.hpp"
#include "plan/replay.hpp"

namespace garonne::plan {

// What one policy or solver came to.
struct StageCandidate {
  std::string name;
  std::int64_t peak_bytes = 0;
  double seconds = 0;
  bool fits = false;
};

struct StagePlan {
  Program program;  // replayed: name, budget, peak and seconds are set
  Prediction prediction;
  // The best of each policy and solver: the fastest that fits, else the leanest.
  std::vector<StageCandidate> candidates;
  std::int64_t minimum_budget_bytes = 0;  // the least at which a plan of the wanted kind exists
};

// `wanted` is "auto" or a name of plan_names(). `reserved_bytes`: the least budget that something
// else of the same rank needs (evaluation). Throws PlanError with the smallest budget that works,
// ConfigError (memory.plan) for an unknown name. A function of its arguments only.
StagePlan plan_stage(const ModelGraph& graph, const StepShape& step, std::int64_t budget_bytes,
                     const std::string& wanted, std::int64_t reserved_bytes);

// What memory.plan may be besides "auto", with a line of help each.
std::vector<std::pair<std::string, std::string>> plan_names();

}  // namespace garonne::plan
