// Solvers of chains that move something as plans of a stage: what of their answers is below, the
// step of plain training within the budget, on all grids, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/chain/chain_solver.hpp"
#include "plan/offload/chain_offload.hpp"
#include "plan/offload/data_ranks.hpp"
#include "plan/offload/offload_policy.hpp"
#include "plan/offload/policy_case.hpp"
#include "plan/offload/policy_planner.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/shared_disk.hpp"
#include "plan/stage/chain_budgets.hpp"
#include "plan/step/pipelines.hpp"

namespace garonne::plan::test {
namespace {

constexpr const char* policies[] = {"pofo", "offload-greedy", "offload-greedy-star"};

LowerTiers roomy_at_speed(Tier tier, double bytes_per_second, std::int64_t bytes = plenty) {
  LowerTiers below;
  below.tiers = {{tier, {{{1e-6, bytes_per_second}, {2e-6, bytes_per_second}}, bytes, 4096}}};
  below.least_bytes = below.least_state_bytes = 0;
  return below;
}

// Which buffers of a kind are copied.
std::set<std::string> moved_of(const Program& program, const std::set<BufferKind>& kinds) {
  std::set<std::string> names;
  for (const Instruction& instruction : program.instructions) {
    if (!is_copy(instruction.operation)) continue;
    const Buffer& buffer = program.buffers[as_index(instruction.arguments.inputs[0])];
    if (kinds.contains(buffer.kind)) names.insert(buffer.name.substr(0, buffer.name.find('@')));
  }
  return names;
}

// Which are copied at all; `weights`: of other kinds than values and records, parameters may be.
std::set<std::string> moved_buffers(const Program& program, bool weights) {
  for (const Instruction& instruction : program.instructions) {
    if (!is_copy(instruction.operation)) continue;
    const Buffer& buffer = program.buffers[as_index(instruction.arguments.inputs[0])];
    EXPECT_TRUE(buffer.kind == BufferKind::Value || buffer.kind == BufferKind::Record ||
                (weights && buffer.kind == BufferKind::Parameter))
        << buffer.name;
  }
  return moved_of(program, {BufferKind::Value, BufferKind::Record, BufferKind::Parameter});
}

int passes_run_again(const Program& program) {
  return static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                        [](const Instruction& one) { return one.recompute; }));
}

class ChainPolicies : public testing::TestWithParam<const char*> {
 protected:
  const OffloadPolicy& policy() const { return *offload_policy(GetParam()); }
  bool runs_again() const { return policy().name == "pofo"; }
  bool moves_weights() const { return !runs_again(); }
};

INSTANTIATE_TEST_SUITE_P(Rows, ChainPolicies, testing::ValuesIn(policies), name_of_test);

TEST(ChainPolicyNames, AreThoseOfAllSolversThatOnlyMove) {
  std::vector<std::string> names;
  for (const ChainSolver& solver : chain_solvers()) {
    if (!solver.refusal) continue;
    names.push_back(solver.name);
    ASSERT_NE(offload_policy(solver.name), nullptr) << solver.name;
    EXPECT_EQ(offload_policy(solver.name)->chain_solver, solver.name);
    EXPECT_TRUE(solver.leanest) << solver.name;
  }
  EXPECT_EQ(names, std::vector<std::string>(std::begin(policies), std::end(policies)));
}

TEST_P(ChainPolicies, TheStepIsTheSameFromTheSmallestBudgetOn) {
  int cells = 0;
  int run_again = 0;
  int moved = 0;
  int moved_weights = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    const int zero = static_cast<int>(seed % 4);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", ZeRO " + std::to_string(zero));
    const Tier tier = seed % 3 == 0 ? Tier::Disk : Tier::Host;
    const TieredCase one = tiered_case(seed, tier, zero);
    TierRequest wish;
    wish.below = roomy_at_speed(tier, seed % 2 == 0 ? 4e3 : 1e5);
    wish.stage.plan = policy().name;
    const LeanPlans lean = find_lean_plans(one.graph, one.step, policy().schedule);
    wish.stage.lean = &lean;
    const TierFloor floor =
        find_policy_floor(policy(), one.graph, one.step, lean, wish.below, nullptr);
    wish.floor = &floor;
    EXPECT_LT(floor.bytes, lean.bytes);
    const Outcome wanted =
        outcome_of(ranks_of(one.program, one.graph, one.step), one.graph, LaneTiming::Early);
    ASSERT_EQ(wanted.failed, "");
    const auto between = [&](int percent) {
      return floor.bytes + (lean.bytes - floor.bytes) * percent / 100;
    };
    for (const std::int64_t budget : {floor.bytes, between(20), between(50), between(80), plenty}) {
      wish.stage.budget_bytes = budget;
      const StagePlan plan = plan_stage_on_tiers(one.graph, one.step, wish);
      ++cells;
      expect_step_of(plan, policy().name, budget, floor.bytes, one, wanted, seed);
      const std::size_t buffers = moved_buffers(plan.program, moves_weights() && zero < 3).size();
      moved += static_cast<int>(buffers);
      moved_weights += static_cast<int>(moved_of(plan.program, {BufferKind::Parameter}).size());
      run_again += passes_run_again(plan.program);
      // Keeping everything needs nobody below.
      EXPECT_EQ(buffers > 0 || passes_run_again(plan.program) > 0, budget < plenty);
    }
    wish.stage.budget_bytes = floor.bytes - 1;
    try {
      plan_stage_on_tiers(one.graph, one.step, wish);
      ADD_FAILURE() << "fits less than the smallest budget";
    } catch (const PlanError& error) {
      EXPECT_EQ(error.needed_bytes(), floor.bytes);
    }
  }
  std::printf("%d Programs, %d passes run again, %d buffers moved, %d of them parameters\n", cells,
              run_again, moved, moved_weights);
  EXPECT_GT(cells, 20);
  EXPECT_GT(moved, moved_weights);
  EXPECT_EQ(moved_weights > 0, moves_weights());
  EXPECT_EQ(run_again > 0, runs_again());
}

// What is moved of a Program is what the solver copies, by the names of buffers, in each
// micro-batch and in no other time than around its turn.
TEST_P(ChainPolicies, WhatIsBelowIsWhatTheSolverSays) {
  const ModelGraph graph = chain(5, 2);
  int copies = 0;
  for (const int micro_batches : {1, 3}) {
    const StepShape step = step_shape(micro_batches, 1, 0);
    const ChainSolver& solver = chain_solver(policy().chain_solver);
    const CopyingStepPlanner planner(solver, graph, step, nullptr);
    const Program all = make_training_program(
        graph, step, same_for_all(schedule_of(graph, "keep-all"), micro_batches));
    const Prediction most = replay(all);
    for (const int percent : {30, 45, 60, 80}) {
      SCOPED_TRACE(std::to_string(micro_batches) + " micro-batches, " + std::to_string(percent));
      const std::int64_t budget =
          most.static_bytes + (most.peak_bytes - most.static_bytes) * percent / 100;
      const TierLinks links{{0, 5e3}, {0, 5e3}};
      const auto answer = planner.within(budget, 1, links);
      if (!answer) continue;
      const Program program = make_training_program(graph, step, answer->schedule);
      const std::vector<IdleTime> idle = idle_times_below(program, graph, *answer);
      // Asked by itself.
      const StageProblem problem = make_stage_problem(graph, step, GradientBuckets::Made);
      Chain chain = problem.chain->chain;
      chain.links = {5e3, 5e3};
      const ChainAnswer alone =
          solver.solve(chain, available_to_chain(problem, budget - problem.tasks.static_bytes), {});
      std::set<std::string> may;
      for (const ChainOperation& one : *alone.operations) {
        if (one.kind != ChainOperationKind::CopyOut) continue;
        ++copies;
        if (one.item == ChainItem::Value) {
          const int value = problem.chain->value[as_index(one.block)];
          may.insert(value < 0 ? "tokens" : graph.values[as_index(value)].name);
          continue;
        }
        for (int n = problem.chain->nodes[as_index(one.block)].first;
             n < problem.chain->nodes[as_index(one.block)].second; ++n) {
          may.insert(graph.nodes[as_index(n)].name);
          may.insert(graph.values[as_index(graph.nodes[as_index(n)].output)].name);
        }
      }
      std::vector<int> turn(as_index(micro_batches), -1);
      for (int place = 0; place < static_cast<int>(program.instructions.size()); ++place) {
        const Instruction& one = program.instructions[as_index(place)];
        if (is_backward(one.operation) && turn[as_index(one.micro_batch)] < 0)
          turn[as_index(one.micro_batch)] = place;
      }
      std::vector<std::set<std::string>> found(as_index(micro_batches));
      for (const IdleTime& time : idle) {
        const std::string& name = program.buffers[as_index(time.buffer)].name;
        const int m = std::stoi(name.substr(name.find('#') + 1));
        EXPECT_LT(time.last_use, turn[as_index(m)]) << name;
        EXPECT_GE(time.next_use, turn[as_index(m)]) << name;
        // Of a record "node.3.slot0#1".
        std::string of = name.substr(0, name.find('#'));
        if (program.buffers[as_index(time.buffer)].kind == BufferKind::Record)
          of = of.substr(0, of.rfind('.'));
        found[as_index(m)].insert(of);
      }
      // The layout of the chain may have left in place what turned out not to have to go.
      if (micro_batches == 1) {
        for (const std::string& name : may) {
          const auto is_used = [&](const std::string& other) { return other == name; };
          const bool there = std::any_of(found[0].begin(), found[0].end(), is_used);
          const auto lives = std::find_if(
              program.buffers.begin(), program.buffers.end(),
              [&](const Buffer& buffer) { return buffer.name.starts_with(name + "#"); });
          if (lives == program.buffers.end()) continue;
          const int id = static_cast<int>(lives - program.buffers.begin());
          const auto times = idle_times(program);
          const bool idles = std::any_of(times.begin(), times.end(), [&](const IdleTime& time) {
            return time.buffer == id && time.last_use < turn[0] && time.next_use >= turn[0];
          });
          EXPECT_EQ(there, idles) << name;
        }
      }
      for (std::size_t m = 2; m < found.size(); ++m) EXPECT_EQ(found[m], found[m - 1]);
    }
  }
  EXPECT_GT(copies, 0);
}

// Asked by itself, of a chain to which the test has given the weights.
TEST_P(ChainPolicies, WeightsThatAreBelowAreThoseThatTheSolverMoves) {
  if (!moves_weights()) return;
  ModelGraph graph = chain(5, 2);
  for (ParameterSpec& parameter : graph.parameters) parameter.elements *= 40;
  const StepShape step = step_shape(1, 1, 0);
  const ChainSolver& solver = chain_solver(policy().chain_solver);
  const CopyingStepPlanner planner(solver, graph, step, nullptr, 0);
  const Program all =
      make_training_program(graph, step, same_for_all(schedule_of(graph, "keep-all"), 1));
  const Prediction most = replay(all);
  const StageProblem problem = make_stage_problem(graph, step, GradientBuckets::Made);
  Chain chain = problem.chain->chain;
  chain.links = {5e3, 5e3};
  std::int64_t weights = 0;
  for (std::size_t block = 0; block < chain.blocks.size(); ++block) {
    const auto [begin, end] = problem.chain->nodes[block];
    for (int node = begin; node < end; ++node) {
      for (const int parameter : graph.nodes[as_index(node)].parameters) {
        for (const Buffer& buffer : all.buffers) {
          if (buffer.name == graph.parameters[as_index(parameter)].name)
            chain.blocks[block].weight_bytes += buffer.bytes;
        }
      }
    }
    weights += chain.blocks[block].weight_bytes;
  }
  ASSERT_GT(weights, 0);
  int answers = 0;
  std::size_t moved = 0;
  for (const int percent : {5, 15, 30, 50, 80, 100}) {
    SCOPED_TRACE(percent);
    const std::int64_t budget = most.static_bytes - weights +
                                (most.peak_bytes - most.static_bytes + weights) * percent / 100;
    const auto answer = planner.within(budget, 1, {{0, 5e3}, {0, 5e3}});
    const ChainAnswer alone = solver.solve(
        chain, available_to_chain(problem, budget - problem.tasks.static_bytes, weights), {});
    ASSERT_EQ(answer.has_value(), alone.operations.has_value());
    if (!answer) continue;
    ++answers;
    std::set<std::string> wanted;
    for (const ChainGap& gap : alone.gaps) {
      if (gap.item != ChainItem::Weights) continue;
      const auto [begin, end] = problem.chain->nodes[as_index(gap.index)];
      for (int node = begin; node < end; ++node) {
        for (const int parameter : graph.nodes[as_index(node)].parameters)
          wanted.insert(graph.parameters[as_index(parameter)].name);
      }
    }
    std::set<std::string> found;
    for (const int buffer : weights_below(all, *answer, 0))
      found.insert(all.buffers[as_index(buffer)].name);
    EXPECT_EQ(found, wanted);
    moved += found.size();
  }
  EXPECT_GT(answers, 2);
  EXPECT_GT(moved, 0U);
}

// With all stages of a pipeline, several micro-batches under way.
TEST_P(ChainPolicies, StagesOfPipelinesAreWithinTheirBudgets) {
  int plans = 0;
  int moved = 0;
  int sooner = 0;
  for (const std::string name : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
    for (const int micro_batches : {2, 4}) {
      SCOPED_TRACE(name + ", " + std::to_string(micro_batches));
      const ModelGraph whole = splitting_chain(8);
      PipelineRequest request;
      request.stages = 2;
      request.micro_batches = micro_batches;
      const PipelineSchedule schedule = make_pipeline_schedule(name, request);
      const Stages plain = stages_of(schedule, whole, "keep-all");
      std::vector<Program> programs;
      for (int stage = 0; stage < schedule.devices; ++stage) {
        PipelineStage cut = make_pipeline_stage(whole, schedule, stage);
        StepShape step;
        step.micro_batches = micro_batches;
        step.optimizer_states = {{.name = "first_moment"}};
        step.pipeline = std::move(cut.place);
        step.world_group = step.pipeline.group = {0, 1};
        step.data_group = {stage};
        TierRequest wish;
        wish.below = roomy_at_speed(stage == 0 ? Tier::Host : Tier::Disk, 1e4);
        wish.stage.plan = policy().name;
        wish.stage.budget_bytes = plenty;
        const StagePlan most = plan_stage_on_tiers(cut.cut.graph, step, wish);
        const std::int64_t least = most.minimum_budget_bytes;
        EXPECT_LT(least, most.prediction.peak_bytes);
        wish.stage.budget_bytes = least + (most.prediction.peak_bytes - least) * stage / 4;
        StagePlan plan = plan_stage_on_tiers(cut.cut.graph, step, wish);
        ++plans;
        EXPECT_LE(plan.prediction.peak_bytes, wish.stage.budget_bytes);
        EXPECT_EQ(plan.minimum_budget_bytes, least);
        EXPECT_NO_THROW(prove(plan.program, cut.cut.graph));
        const std::set<std::string> names = moved_buffers(plan.program, moves_weights());
        EXPECT_FALSE(names.empty());
        moved += static_cast<int>(names.size());
        plan.program.rank = stage;
        programs.push_back(std::move(plan.program));
      }
      // A disk that nobody shares changes nothing, one that two share is never slower than halves.
      const std::vector<Prediction> together = replay_together(programs);
      const auto own = replay_together(programs, SharedDisk{1, 1e-6, false, {{1, 0}, {0, 1}}});
      const auto shared = replay_together(programs, SharedDisk{2, 1e-6, false, {{1, 1}, {1, 1}}});
      for (std::size_t stage = 0; stage < programs.size(); ++stage) {
        const double seconds = together[stage].seconds;
        EXPECT_NEAR(own[stage].seconds, seconds, 1e-9 * seconds);
        EXPECT_LE(shared[stage].seconds, seconds * (1 + 1e-9));
        sooner += shared[stage].seconds < seconds * (1 - 1e-9);
      }
      const auto outcome = [&](const std::vector<Program>& of, LaneTiming timing) {
        return interpret({{&plain.graphs[0], &of[0]}, {&plain.graphs[1], &of[1]}}, timing, 3);
      };
      const Outcome wanted = outcome(plain.programs, LaneTiming::Early);
      ASSERT_EQ(wanted.failed, "");
      for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Random})
        EXPECT_EQ(outcome(programs, timing), wanted);
    }
  }
  std::printf("%d stages, %d buffers moved\n", plans, moved);
  EXPECT_EQ(plans, 16);
  EXPECT_GT(sooner, 0);
}

// A tier with little room takes what it has room for; then the smallest budget is larger.
TEST_P(ChainPolicies, ATierIsNeverFullerThanItMayBe) {
  const TieredCase one = tiered_case(3, Tier::Disk);
  const LeanPlans lean = find_lean_plans(one.graph, one.step, policy().schedule);
  std::int64_t with_more = std::numeric_limits<std::int64_t>::max();
  int smaller = 0;
  for (const std::int64_t room : {1 << 12, 1 << 14, 1 << 15, 1 << 30}) {
    SCOPED_TRACE(room);
    TierRequest wish;
    wish.below = roomy_at_speed(Tier::Disk, 1e4, room);
    wish.stage.plan = policy().name;
    wish.stage.lean = &lean;
    const TierFloor floor =
        find_policy_floor(policy(), one.graph, one.step, lean, wish.below, nullptr);
    EXPECT_LE(floor.bytes, with_more);
    smaller += floor.bytes < with_more;
    with_more = floor.bytes;
    wish.floor = &floor;
    wish.stage.budget_bytes = floor.bytes;
    const StagePlan plan = plan_stage_on_tiers(one.graph, one.step, wish);
    EXPECT_LE(plan.prediction.peak_bytes, floor.bytes);
    EXPECT_LE(plan.prediction.of(Tier::Disk).peak_bytes, room);
  }
  EXPECT_GT(smaller, 1);
}

TEST_P(ChainPolicies, AStageThatIsNoChainIsRefused) {
  const ModelGraph graph = without_gradients(chain(1, 1), 1);
  const StepShape step = step_shape(1, 1, 0);
  TierRequest wish;
  wish.below = roomy_at_speed(Tier::Disk, 1e4);
  wish.stage.plan = policy().name;
  wish.stage.budget_bytes = plenty;
  try {
    plan_stage_on_tiers(graph, step, wish);
    FAIL() << "is a chain";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* word : {"memory.plan", GetParam(), "no single value passes", "auto"})
      EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

TEST_P(ChainPolicies, WithoutATierThereIsNone) {
  const TieredCase one = tiered_case(0, Tier::Host);
  TierRequest wish;
  wish.stage.plan = policy().name;
  wish.stage.budget_bytes = plenty;
  try {
    plan_stage_on_tiers(one.graph, one.step, wish);
    FAIL() << "moves to nowhere";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* word : {"memory.plan", GetParam(), "memory.disk", "memory.host_budget"})
      EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace garonne::plan::test
