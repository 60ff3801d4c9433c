// The Program of a stage that runs as few blocks again as a budget asks for: a quick answer for
// searches over many grids. plan/stage/stage_planner.hpp looks node by node and finds faster ones.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/program/replay.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

struct BlockPlan {
  Program program;  // replayed: name, budget, peak and seconds are set
  Prediction prediction;
  int index = 0;                 // into the stage's BlockFamily
  std::int64_t least_bytes = 0;  // its peak with one reduction under way
};

// The first of the stage's BlockFamily whose Program fits, found by bisection. `known`: the index
// that an equal stage came to. Throws PlanError with the bytes of the leanest. A function of its
// arguments only.
BlockPlan plan_by_blocks(const ModelGraph& graph, const StepShape& step, std::int64_t budget_bytes,
                         std::optional<int> known = std::nullopt);

}  // namespace garonne::plan
