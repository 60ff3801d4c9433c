// Policies and solvers of one micro-batch of a stage, by name: each answers a budget with schedules
// of the stage's nodes. Adding one takes a file and a line of the registry.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/stage/stage_chain.hpp"
#include "plan/stage/task_graph.hpp"

namespace garonne::plan {

struct ChainSolver;
struct GraphSolver;

// Of all micro-batches of a step together, where nodes run more than once: the leanest schedules of
// deep models run them so often that nothing could hold the Program.
inline constexpr std::int64_t most_steps_of_program = std::int64_t{1} << 20;

struct StageProblem {
  const ModelGraph& model;
  TaskGraph tasks;
  std::optional<StageChain> chain;
  std::int64_t most_steps = most_steps_of_program;  // of its schedule
  // Of the stage, in a pipeline; empty = one micro-batch after the other.
  std::vector<PipelineOperation> order = {};

  bool too_long(std::size_t steps) const { return static_cast<std::int64_t>(steps) > most_steps; }
};
StageProblem make_stage_problem(const ModelGraph& model, const StepShape& step,
                                GradientBuckets buckets, TextCache* cache = nullptr);

// Both answer with candidates; the planner traces them and takes the fastest that fits, or the
// leanest.
struct StageSolver {
  std::string name;  // for memory.plan
  std::string help;
  // Whether "auto" asks it, too. Those that it does not ask take long, or find nothing that the
  // others do not.
  bool in_auto = true;
  // Why it has no answer to the problem, as "takes graphs of up to 300 tasks and this one has 400";
  // empty where it applies. None: it always does.
  std::function<std::string(const StageProblem&)> refusal = {};
  // Policies only: all that they ever answer where one micro-batch comes after the other.
  std::function<std::vector<NodeSchedule>(const ModelGraph&)> schedules = {};
  // `budget_bytes`: for the values of the task graph, without its static bytes. `lean`: a schedule
  // to start from where nothing else fits. Nothing where it does not apply.
  std::function<std::vector<NodeSchedule>(const StageProblem&, std::int64_t budget_bytes,
                                          const NodeSchedule& lean)>
      solve = {};
  std::function<std::vector<NodeSchedule>(const StageProblem&)> leanest = {};
};

// keep-all comes first. All solvers of chains and of graphs are there by their names; a name that a
// policy has as well is the policy on the blocks of the model, which need not be a chain.
const std::vector<StageSolver>& stage_solvers();

// Empty where `solver` applies to `problem`.
std::string refusal_of(const StageSolver& solver, const StageProblem& problem);

// The members of the registry, each in a file of its own.
StageSolver keep_all_policy();
StageSolver selective_policy();
StageSolver uniform_policy();
StageSolver full_policy();
StageSolver megatron_selective_policy();
StageSolver greedy_stage_solver();
StageSolver rotor_stage_solver();
StageSolver search_stage_solver();
StageSolver chain_stage_solver(const ChainSolver& solver);
StageSolver graph_stage_solver(const GraphSolver& solver);

}  // namespace garonne::plan
