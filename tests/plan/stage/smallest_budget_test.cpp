// The smallest budget of a stage: reached exactly, whatever plan is forced, however data ranks
// communicate, in pipelines too, and whatever a profile says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/smallest_budget.hpp"
#include "plan/stage/stage_planner.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan {
namespace {

// GARONNE_RANDOM_STAGES = N does the seeds from 1 to N.
unsigned seeds(unsigned few) {
  const char* const given = std::getenv("GARONNE_RANDOM_STAGES");
  return given != nullptr ? static_cast<unsigned>(std::stoul(given)) : few;
}

constexpr std::int64_t plenty = std::int64_t{1} << 40;

struct Stage {
  std::string name;
  ModelGraph graph;
  StepShape step;
};

// A stage as a profile would leave it: other seconds, no more scratch memory than declared.
ModelGraph measured(ModelGraph graph, unsigned seed) {
  std::mt19937 random(seed);
  for (auto& node : graph.nodes) {
    const std::int64_t declared_in_place =
        node.in_place_transient_bytes.value_or(node.backward.transient_bytes);
    const auto less = [&](std::int64_t bytes) {
      const std::int64_t share = static_cast<std::int64_t>(random() % 4);
      return bytes / 64 * share / 3 * 64;
    };
    for (OperationCost* const cost :
         {&node.forward, &node.forward_keep, &node.backward, &node.backward_weight}) {
      cost->seconds = 1e-3 * static_cast<double>(1 + random() % 100);
      cost->transient_bytes = less(cost->transient_bytes);
    }
    node.in_place_transient_bytes = less(declared_in_place);
  }
  return graph;
}

std::vector<Stage> stages_of(unsigned seed) {
  std::vector<Stage> stages;
  const ModelGraph graph = test::random_graph(seed);
  std::mt19937 random(seed);
  for (int zero = 0; zero <= 3; ++zero) {
    const int micro_batches = 1 + static_cast<int>(random() % 3);
    const int ranks = 2 + static_cast<int>(random() % 2);
    Stage stage{"zero " + std::to_string(zero), graph,
                test::step_shape(micro_batches, ranks, random() % 2 == 0 ? 1000 : 1 << 20)};
    stage.step.zero = zero;
    stages.push_back(std::move(stage));
  }
  const std::vector<std::string> schedules = {"gpipe", "1f1b", "zb-h1", "zb-h2"};
  PipelineRequest request;
  request.stages = 2;
  request.micro_batches = 4;
  const ModelGraph whole = test::chain(6, 2);
  const auto schedule = make_pipeline_schedule(schedules[seed % schedules.size()], request);
  for (int member = 0; member < 2; ++member) {
    PipelineStage cut = make_pipeline_stage(measured(whole, seed), whole, schedule, member);
    Stage stage{schedule.name + " stage " + std::to_string(member), cut.cut.graph,
                test::step_shape(4, 2, 1 << 20)};
    stage.step.zero = static_cast<int>(seed / schedules.size()) % 4;
    stage.step.pipeline = std::move(cut.place);
    stage.step.pipeline.group = {0, 1};
    stages.push_back(std::move(stage));
  }
  return stages;
}

std::int64_t refusal(const Stage& stage, const StageRequest& wish) {
  try {
    plan_stage(stage.graph, stage.step, wish);
  } catch (const PlanError& error) {
    EXPECT_EQ(error.available_bytes(), wish.budget_bytes);
    return error.needed_bytes();
  }
  return 0;
}

TEST(SmallestBudget, IsTakenExactlyAndOneByteLessIsRefusedWithIt) {
  for (unsigned seed = 1; seed <= seeds(1); ++seed) {
    for (const Stage& stage : stages_of(seed)) {
      for (const char* const plan : {"auto", "keep-all", "full", "greedy"}) {
        SCOPED_TRACE(std::to_string(seed) + " " + stage.name + " " + plan);
        const std::int64_t least = find_lean_plans(stage.graph, stage.step, plan).bytes;
        for (const bool first_that_fits : {false, true}) {
          const StagePlan found =
              plan_stage(stage.graph, stage.step, {least, plan, 0, first_that_fits});
          EXPECT_LE(replay(found.program).peak_bytes, least);
          EXPECT_EQ(refusal(stage, {least - 1, plan, 0, first_that_fits}), least);
          EXPECT_EQ(refusal(stage, {least / 2, plan, 0, first_that_fits}), least);
        }
        EXPECT_EQ(plan_stage(stage.graph, stage.step, {plenty, plan}).minimum_budget_bytes, least);
        EXPECT_EQ(
            plan_stage(stage.graph, stage.step, {plenty, plan, least + 64}).minimum_budget_bytes,
            least + 64)
            << "what is reserved counts";
      }
    }
  }
}

TEST(SmallestBudget, IsTheSameWhateverAProfileSays) {
  for (unsigned seed = 1; seed <= seeds(2); ++seed) {
    for (const Stage& stage : stages_of(seed)) {
      SCOPED_TRACE(std::to_string(seed) + " " + stage.name);
      const LeanPlans lean = find_lean_plans(stage.graph, stage.step, "auto");
      ModelGraph slower = stage.graph;
      for (auto& node : slower.nodes) node.forward.seconds = node.backward.seconds *= 7;
      StepShape elsewhere = stage.step;
      elsewhere.links.data.link.bytes_per_second = 3;
      elsewhere.links.world.link.latency_seconds = 3;
      EXPECT_EQ(find_lean_plans(slower, elsewhere, "auto").bytes, lean.bytes);
      const ModelGraph profiled = measured(stage.graph, seed);
      for (const bool first_that_fits : {false, true}) {
        StageRequest wish{lean.bytes, "auto", 0, first_that_fits};
        wish.lean = &lean;
        const StagePlan found = plan_stage(profiled, stage.step, wish);
        EXPECT_LE(replay(found.program).peak_bytes, lean.bytes);
        // What fits in less by what was measured is refused all the same.
        wish.budget_bytes = lean.bytes - 1;
        EXPECT_EQ(refusal({"", profiled, stage.step}, wish), lean.bytes);
      }
    }
  }
}

// What auto runs, the same plan by its name runs.
TEST(SmallestBudget, OfKeepingEverythingIsThatOfAuto) {
  int between = 0;  // budgets that only an inner way to communicate takes
  for (unsigned seed = 1; seed <= seeds(2); ++seed) {
    for (const Stage& stage : stages_of(seed)) {
      SCOPED_TRACE(std::to_string(seed) + " " + stage.name);
      const std::int64_t keeps = find_lean_plans(stage.graph, stage.step, "keep-all").bytes;
      EXPECT_TRUE(keeping_everything_fits(stage.graph, stage.step, keeps));
      EXPECT_FALSE(keeping_everything_fits(stage.graph, stage.step, keeps - 1));
      EXPECT_LE(find_lean_plans(stage.graph, stage.step, "auto").bytes, keeps);
      const StagePlan chosen = plan_stage(stage.graph, stage.step, {keeps, "auto", 0, true});
      const StagePlan forced = plan_stage(stage.graph, stage.step, {keeps, "keep-all"});
      EXPECT_EQ(chosen.program.name, forced.program.name);
      EXPECT_EQ(program_hash(chosen.program), program_hash(forced.program));
      // All efforts come to what keeps everything, where that is fastest.
      EXPECT_LE(plan_stage(stage.graph, stage.step, {keeps, "auto"}).prediction.seconds,
                forced.prediction.seconds);
      if (stage.step.zero == 3 && forced.program.name.find("2 gathers") == std::string::npos &&
          forced.program.name.find("1 reduction") == std::string::npos)
        ++between;
    }
  }
  EXPECT_GT(between, 0);
}

// A cut by other seconds does not move with those of the graph itself.
TEST(SmallestBudget, PipelinesCanBeCutByWhatIsDeclared) {
  PipelineRequest request;
  request.stages = 3;
  request.micro_batches = 3;
  const auto schedule = make_pipeline_schedule("1f1b", request);
  const ModelGraph declared = test::chain(9, 1);
  bool moved = false;
  for (unsigned seed = 1; seed <= 5; ++seed) {
    const ModelGraph profiled = measured(declared, seed);
    for (int stage = 0; stage < 3; ++stage) {
      const auto names = [](const PipelineStage& made) {
        std::vector<std::string> result;
        for (const auto& node : made.cut.graph.nodes) result.push_back(node.name);
        return result;
      };
      const auto as_declared = names(make_pipeline_stage(declared, schedule, stage));
      EXPECT_EQ(names(make_pipeline_stage(profiled, declared, schedule, stage)), as_declared);
      moved = moved || names(make_pipeline_stage(profiled, schedule, stage)) != as_declared;
    }
  }
  EXPECT_TRUE(moved);
}

}  // namespace
}  // namespace garonne::plan
