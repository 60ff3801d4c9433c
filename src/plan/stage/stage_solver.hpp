// Solvers of one micro-batch of a stage, by name: each answers a budget with schedules of the
// stage's nodes. Adding one takes a file and a line of the registry.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/stage/stage_chain.hpp"
#include "plan/stage/task_graph.hpp"

namespace garonne::plan {

// Of all micro-batches of a step together, where nodes run more than once: the leanest schedules of
// deep models run them so often that nothing could hold the Program.
inline constexpr std::int64_t most_steps_of_program = std::int64_t{1} << 20;

struct StageProblem {
  const ModelGraph& model;
  TaskGraph tasks;
  std::optional<StageChain> chain;
  std::int64_t most_steps = most_steps_of_program;  // of its schedule
};
StageProblem make_stage_problem(const ModelGraph& model, const StepShape& step,
                                GradientBuckets buckets,
                                const OptionCache& cache = OptionCache(""));

// Both answer with candidates; the planner traces them and takes the fastest that fits, or the
// leanest.
struct StageSolver {
  std::string name;  // for memory.plan
  std::string help;
  // `budget_bytes`: for the values of the task graph, without its static bytes. `lean`: a schedule
  // to start from where nothing else fits.
  std::function<std::vector<NodeSchedule>(const StageProblem&, std::int64_t budget_bytes,
                                          const NodeSchedule& lean)>
      solve;
  std::function<std::vector<NodeSchedule>(const StageProblem&)> leanest;
};
const std::vector<StageSolver>& stage_solvers();

}  // namespace garonne::plan
