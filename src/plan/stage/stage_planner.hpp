// The fastest Program of one stage that fits a budget: tries every applicable policy and solver on
// the stage's micro-batches and replays what they answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/program/replay.hpp"
#include "plan/stage/smallest_budget.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// What one policy or solver came to.
struct StageCandidate {
  std::string name;
  std::int64_t peak_bytes = 0;
  double seconds = 0;
  bool fits = false;
};

// Adds it, or keeps the better of it and the one of its name: the fastest that fits, else the
// leanest.
void note_candidate(const StageCandidate& candidate, std::vector<StageCandidate>& candidates);

struct StagePlan {
  Program program;  // replayed: name, budget, peak and seconds are set
  Prediction prediction;
  // The best of each policy and solver: the fastest that fits, else the leanest.
  std::vector<StageCandidate> candidates;
  // The smallest budget of the wanted kind of plan (plan/stage/smallest_budget.hpp), not below what
  // is reserved; 0 where nobody had to find out.
  std::int64_t minimum_budget_bytes = 0;
  // No plan within the budget takes less, by what memory and links allow; 0 where nobody found out.
  double least_seconds = 0;
};

struct StageRequest {
  std::int64_t budget_bytes = 0;
  std::string plan = "auto";        // or a name of plan_names()
  std::int64_t reserved_bytes = 0;  // the least that something else of the same rank needs
  bool first_that_fits = false;     // be content when keep-all fits, ask nobody else
  TextCache* cache = nullptr;       // of options of blocks; null: none
  // The leanest plans by what the stage's nodes declare; null: by the graph as it is given.
  const LeanPlans* lean = nullptr;
};

// Throws PlanError with the smallest budget where `wish` has less, and with the least that was
// found where that is enough by what nodes declare and not by what the graph says; ConfigError
// (memory.plan) for an unknown name. A function of its arguments only.
StagePlan plan_stage(const ModelGraph& graph, const StepShape& step, const StageRequest& wish);

// What memory.plan may be besides "auto", with a line of help each.
std::vector<std::pair<std::string, std::string>> plan_names();

}  // namespace garonne::plan
