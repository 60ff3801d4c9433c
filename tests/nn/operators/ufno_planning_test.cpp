// Planners on a graph whose skips go over everything between.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "base/error.hpp"
#include "nn/fields/field_model.hpp"
#include "plan/graph/graph_replay.hpp"
#include "plan/graph/graph_solver.hpp"
#include "plan/pipeline/stage_cut.hpp"
#include "plan/stage/stage_planner.hpp"
#include "plan/stage/stage_solver.hpp"

namespace garonne::nn {
namespace {

RunConfig::Model small_keys() {
  RunConfig::Model keys;
  keys.kind = "ufno";
  keys.hidden = 8;
  keys.levels = 2;
  keys.modes = {8, 8};
  return keys;
}

FieldShape small_shape() {
  FieldShape shape;
  shape.input_channels = shape.target_channels = 1;
  shape.points = {16, 16};
  return shape;
}

Model small_model() {
  return make_field_model(small_keys(), "relative-l2", small_shape(), /*batch=*/2, Declaration());
}

// A skip that a stage does not use is received there and handed on.
TEST(UShapedOperators, SkipsPassStagesThatDoNotUseThem) {
  const Model model = small_model();
  const plan::ModelGraph& whole = model.graph;
  std::vector<plan::NodeRange> parts;  // one a block
  for (int n = 0; n < static_cast<int>(whole.nodes.size()); ++n) {
    const int block = whole.nodes[static_cast<std::size_t>(n)].block;
    if (n == 0 || block != whole.nodes[static_cast<std::size_t>(n) - 1].block)
      parts.push_back({n, n});
    parts.back().last = n + 1;
  }
  // The lift, two levels down, the bottom, two levels up, the projection.
  ASSERT_EQ(parts.size(), 7U);
  for (const bool begins : plan::part_beginnings(whole)) EXPECT_TRUE(begins);
  const auto passed_by = [&](int part) {
    const plan::StageCut cut =
        plan::cut_stage(whole, parts, {{.part = part, .receives = true, .hands_over = true}});
    std::set<std::string> passed;
    for (const auto& node : cut.graph.nodes) {
      if (!node.hands_over) continue;
      const plan::ValueSpec& value = cut.graph.values[static_cast<std::size_t>(node.inputs.at(0))];
      if (value.loaded) passed.insert(value.name);
    }
    return passed;
  };
  EXPECT_EQ(passed_by(1), (std::set<std::string>{}));
  EXPECT_EQ(passed_by(2), (std::set<std::string>{"down.0.gelu"}));
  EXPECT_EQ(passed_by(3), (std::set<std::string>{"down.0.gelu", "down.1.gelu"}));
  EXPECT_EQ(passed_by(4), (std::set<std::string>{"down.0.gelu"}));
  EXPECT_EQ(passed_by(5), (std::set<std::string>{}));
}

// From the least budget to all bytes: the search on graphs answers, and is never slower than blocks
// repeated alike.
TEST(UShapedOperators, PlannersRepeatAcrossTheSkips) {
  Model model = small_model();
  for (auto& node : model.graph.nodes) {
    // Not measured, so that every run plans the same.
    const auto seconds = [](plan::OperationCost& cost) {
      cost.seconds = 1e-6 + 1e-9 * cost.floating_point_operations;
    };
    seconds(node.forward);
    seconds(node.forward_keep);
    seconds(node.backward);
  }
  plan::StepShape step;
  step.element_bytes.parameter = step.element_bytes.gradient = step.element_bytes.state = 4;
  step.optimizer_states = {{.name = "first_moment"}, {.name = "second_moment"}};
  step.data_group = {0};
  const plan::StageProblem problem =
      plan::make_stage_problem(model.graph, step, plan::GradientBuckets::Made);
  const plan::ComputationGraph& graph = problem.tasks.graph;
  const auto keep_all = plan::replay_schedule(graph, plan::keep_all_schedule(graph));
  const plan::GraphSolver& search = plan::graph_solver("annealing");
  const std::int64_t least = search.solve(graph, keep_all.peak_bytes, {}).minimum_bytes;
  EXPECT_LT(static_cast<double>(least), 0.8 * static_cast<double>(keep_all.peak_bytes));
  double slowest = 0;
  for (const int part : {0, 1, 2, 3, 4}) {
    const std::int64_t budget = least + (keep_all.peak_bytes - least) * part / 4;
    const plan::GraphAnswer answer = search.solve(graph, budget, {});
    ASSERT_TRUE(answer.schedule.has_value()) << budget;
    const auto outcome = plan::replay_schedule(graph, *answer.schedule);
    EXPECT_EQ(outcome.peak_bytes, answer.peak_bytes);
    EXPECT_LE(outcome.peak_bytes, budget);
    EXPECT_LE(outcome.peak_bytes, keep_all.peak_bytes);
    EXPECT_GE(outcome.seconds, keep_all.seconds * (1 - 1e-12));
    if (part == 4) {
      EXPECT_DOUBLE_EQ(outcome.seconds, keep_all.seconds);
    }
    slowest = std::max(slowest, outcome.seconds);
  }
  EXPECT_GT(slowest, keep_all.seconds);

  const auto uniform_plan = [&](std::int64_t budget) -> std::optional<plan::StagePlan> {
    try {
      return plan::plan_stage(model.graph, step, {budget, "uniform"});
    } catch (const PlanError&) {
      return std::nullopt;
    }
  };
  int compared = 0;
  const auto whole = plan::plan_stage(model.graph, step, {std::int64_t{1} << 40, "keep-all"});
  for (const int percent : {50, 60, 70, 80, 90, 100}) {
    const std::int64_t budget = whole.prediction.peak_bytes * percent / 100;
    const auto uniform = uniform_plan(budget);
    if (!uniform) continue;
    const auto searched = plan::plan_stage(model.graph, step, {budget, "annealing"});
    EXPECT_LE(searched.prediction.peak_bytes, budget);
    EXPECT_LE(searched.prediction.seconds, uniform->prediction.seconds * (1 + 1e-9)) << percent;
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

}  // namespace
}  // namespace garonne::nn
