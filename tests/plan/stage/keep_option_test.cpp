// Nodes that can be kept in several ways, by a record kind that is added here: schedules, task
// graphs, solvers and Programs take it from the model alone, and what comes of it is held against
// numbers, all states of small graphs, and the plans without it.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "plan/graph/checkmate_model.hpp"
#include "plan/graph/exhaustive_schedule.hpp"
#include "plan/graph/graph_bound.hpp"
#include "plan/graph/graph_replay.hpp"
#include "plan/graph/graph_solver.hpp"
#include "plan/graph/linear_program.hpp"
#include "plan/graph/liveness.hpp"
#include "plan/pipeline/stage_cut.hpp"
#include "plan/program/content_check.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/program_meaning.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/scalar_run.hpp"
#include "plan/stage/packed_record.hpp"
#include "plan/stage/stage_planner.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

// Private slots of twice the bytes of a value.
ModelGraph heavy_chain(int blocks, int nodes_a_block) {
  ModelGraph graph = chain(blocks, nodes_a_block);
  for (NodeSpec& node : graph.nodes) {
    if (!node.private_slot_bytes.empty()) node.private_slot_bytes = {8192, 64};
  }
  return graph;
}

int packed_in(const Program& program) {
  int packed = 0;
  for (const Instruction& instruction : program.instructions) {
    packed +=
        instruction.operation == Operation::ForwardKeep && instruction.arguments.keep_option == 1;
  }
  return packed;
}

// The gradients are those of the whole model, whatever was kept in which way.
void expect_gradients(const ModelGraph& graph, const Program& program, int micro_batches) {
  const ScalarStep wanted = scalar_reference(graph, micro_batches);
  const ScalarStep found = scalar_run({graph}, {program});
  EXPECT_NEAR(found.loss, wanted.loss, 1e-12 * wanted.loss);
  ASSERT_EQ(found.gradients.size(), wanted.gradients.size());
  for (const auto& [parameter, gradient] : wanted.gradients)
    EXPECT_NEAR(found.gradients.at(parameter), gradient, 1e-12 * gradient) << parameter;
}

TEST(KeepOptions, AnyFatesAreRight) {
  int packed = 0;
  for (unsigned seed = 300; seed < 340; ++seed) {
    SCOPED_TRACE(seed);
    const ModelGraph graph = with_packed_records(random_graph(seed));
    ASSERT_NO_THROW(check_model_graph(graph));
    std::mt19937 random(seed);
    const NodeSchedule schedule = recompute_on_demand(graph, random_fates(graph, random));
    check_program(graph, step_shape(2, 2, 500), schedule);
    const Program program =
        make_training_program(graph, step_shape(2, 1, 500), same_for_all(schedule, 2));
    expect_gradients(graph, program, 2);
    packed += packed_in(program);
    if (HasFailure()) return;
  }
  EXPECT_GT(packed, 100);
}

TEST(KeepOptions, TasksTraceWhatReplayPredicts) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const ModelGraph graph = with_packed_records(random_graph(seed));
    const StepShape step = step_shape(1, 1, seed % 3 == 0 ? 1000 : 0);
    const TaskGraph tasks = make_task_graph(graph, step, GradientBuckets::Made);
    std::mt19937 random(seed);
    for (int again = 0; again < 4; ++again) {
      const NodeSchedule schedule = recompute_on_demand(graph, random_fates(graph, random));
      const TaskSchedule as_tasks = to_task_schedule(tasks, schedule);
      EXPECT_TRUE(schedule == to_node_schedule(graph, tasks, as_tasks));
      ASSERT_NO_THROW(replay_schedule(tasks.graph, as_tasks));
      const LivenessTrace trace = trace_liveness(tasks.graph, as_tasks);
      EXPECT_EQ(replay_schedule(tasks.graph, as_tasks).peak_bytes, trace.peak_bytes);
      const Prediction prediction =
          replay(make_training_program(graph, step, same_for_all(schedule, 1)));
      EXPECT_DOUBLE_EQ(trace.seconds, prediction.seconds);
      EXPECT_GE(trace.peak_bytes + tasks.static_bytes, prediction.peak_bytes);
      EXPECT_LE(trace.peak_bytes + tasks.static_bytes, prediction.peak_bytes + 3 * 64);
    }
  }
}

// Every policy and solver from the least budget on; those that choose among ways choose this one.
TEST(KeepOptions, AllPlansAreLegalAndSolversUseThem) {
  std::map<std::string, int> packed;
  const auto plan = [&](const ModelGraph& graph, const std::string& name, bool large) {
    const StepShape step = step_shape(2, 1, 0);
    StagePlan fast;
    try {
      fast = plan_stage(graph, step, {1LL << 40, name});
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), "memory.plan");
      EXPECT_FALSE(large) << error.what();
      return;
    }
    const std::int64_t least = fast.minimum_budget_bytes;
    for (const int part : {0, 1, 2}) {
      const std::int64_t budget =
          least + std::max<std::int64_t>(0, fast.prediction.peak_bytes - least) * part / 3;
      const StagePlan found = plan_stage(graph, step, {budget, name});
      SCOPED_TRACE(found.program.name);
      EXPECT_LE(slow_peak(found.program), budget);
      prove(found.program, graph);
      expect_gradients(graph, found.program, 2);
      packed[name] += packed_in(found.program);
    }
  };
  for (const auto& [name, help] : plan_names()) {
    SCOPED_TRACE(name);
    const bool proof = name.find("checkmate") == 0;
    if (proof && !has_linear_program_solver()) continue;
    // The chain has no attention.
    plan(with_packed_records(heavy_chain(proof ? 1 : 4, 2)), name, name != "megatron-selective");
    if (!proof) plan(with_packed_records(random_graph(1)), name, false);
  }
  plan(with_packed_records(heavy_chain(4, 2)), "auto", true);
  for (const char* name : {"auto", "greedy", "rotor", "search"}) EXPECT_GT(packed[name], 0) << name;
  EXPECT_TRUE(packed["checkmate"] > 0 || !has_linear_program_solver());
  // What keeps the first way or nothing by its definition.
  for (const char* name : {"keep-all", "full", "selective", "uniform"})
    EXPECT_EQ(packed[name], 0) << name;
}

TEST(KeepOptions, AnotherWayMakesPlansFaster) {
  const ModelGraph plain = heavy_chain(4, 2);
  const StepShape step = step_shape(2, 1, 0);
  const StagePlan all = plan_stage(plain, step, {1LL << 40, "auto"});
  for (const int part : {1, 2, 3}) {
    const std::int64_t budget = all.minimum_budget_bytes +
                                (all.prediction.peak_bytes - all.minimum_budget_bytes) * part / 4;
    const StagePlan without = plan_stage(plain, step, {budget, "auto"});
    const StagePlan with = plan_stage(with_packed_records(plain), step, {budget, "auto"});
    EXPECT_LT(with.prediction.seconds, without.prediction.seconds) << part;
  }
}

// Small enough for all states.
TEST(KeepOptions, GraphSolversAreExactOrBounded) {
  const ModelGraph graph = with_packed_records(heavy_chain(1, 2));
  const TaskGraph tasks = make_task_graph(graph, step_shape(1, 1, 0), GradientBuckets::Made);
  const std::int64_t most = replay_schedule(tasks.graph, keep_all_schedule(tasks.graph)).peak_bytes;
  int solved = 0;
  int packed = 0;
  for (const int percent : {60, 70, 80, 90, 95, 100}) {
    SCOPED_TRACE(percent);
    const std::int64_t budget = most * percent / 100;
    const auto any = fastest_schedule_seconds(tasks.graph, budget);
    const auto in_order = fastest_in_order_seconds(tasks.graph, budget);
    const GraphAnswer annealed = graph_solver("annealing").solve(tasks.graph, budget, {});
    if (annealed.schedule) {
      ASSERT_TRUE(any.has_value());
      EXPECT_LE(replay_schedule(tasks.graph, *annealed.schedule).peak_bytes, budget);
      EXPECT_GE(annealed.seconds, *any * (1 - 1e-9));
    }
    if (!any) continue;
    EXPECT_LE(lower_bound_seconds(tasks.graph, budget), *any * (1 + 1e-9));
    if (!in_order || !has_linear_program_solver()) continue;
    const CheckmateModel model(tasks.graph, budget);
    const LinearProgramAnswer alone = solve_linear_program(model.program(), {});
    ASSERT_EQ(alone.status, LinearProgramStatus::Optimal);
    const TaskSchedule schedule = model.schedule(alone.values);
    const ScheduleOutcome outcome = replay_schedule(tasks.graph, schedule);
    EXPECT_LE(outcome.peak_bytes, budget);
    EXPECT_NEAR(outcome.seconds, *in_order, 1e-9 * *in_order);
    const Program program = make_training_program(
        graph, step_shape(1, 1, 0), same_for_all(to_node_schedule(graph, tasks, schedule), 1));
    prove(program, graph);
    expect_gradients(graph, program, 1);
    packed += packed_in(program);
    ++solved;
    const GraphAnswer rounded = graph_solver("checkmate-rounding").solve(tasks.graph, budget, {});
    if (rounded.schedule) {
      EXPECT_LE(replay_schedule(tasks.graph, *rounded.schedule).peak_bytes, budget);
      EXPECT_GE(rounded.seconds, *any * (1 - 1e-9));
    }
  }
  if (!has_linear_program_solver()) return;
  EXPECT_GE(solved, 3);
  EXPECT_GT(packed, 0);
}

class TextsByName : public TextCache {
 public:
  std::optional<std::string> find(const std::string& name) override {
    const auto text = texts.find(name);
    return text == texts.end() ? std::nullopt : std::optional(text->second);
  }
  void keep(const std::string& name, const std::string& text) override { texts[name] = text; }
  std::string place_of(const std::string& name) const override { return name; }
  void say_damaged(const std::string&) override { ++damaged; }

  std::map<std::string, std::string> texts;
  int damaged = 0;
};

TEST(KeepOptions, AreInTheCacheOfBlocks) {
  const ModelGraph graph = with_packed_records(heavy_chain(3, 2));
  const TaskGraph tasks = make_task_graph(graph, step_shape(1, 1, 0), GradientBuckets::Made);
  TextsByName cache;
  const auto solved = make_stage_chain(graph, tasks, &cache);
  const auto texts = cache.texts;
  EXPECT_EQ(make_stage_chain(graph, tasks, &cache)->fates, solved->fates);
  EXPECT_EQ(cache.damaged, 0);
  int packed = 0;
  for (const auto& block : solved->fates) {
    for (const auto& option : block) {
      for (const RecordFate fate : option) packed += fate == RecordFate{Fate::Keep, 1};
    }
  }
  EXPECT_GT(packed, 0);
  // Without the further way it is another block; with a number of no way it is solved again.
  const ModelGraph plain = heavy_chain(3, 2);
  make_stage_chain(plain, make_task_graph(plain, step_shape(1, 1, 0), GradientBuckets::Made),
                   &cache);
  EXPECT_GT(cache.texts.size(), texts.size());
  for (auto& [name, text] : cache.texts) {
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
    for (auto& option : json["kept"]) option[0] = 7;
    text = json.dump(1) + "\n";
  }
  EXPECT_EQ(make_stage_chain(graph, tasks, &cache)->fates, solved->fates);
  EXPECT_GT(cache.damaged, 0);
}

TEST(KeepOptions, AreInFilesOfProgramsAndProved) {
  const ModelGraph graph = with_packed_records(random_graph(3));
  Fates fates = keep_everything(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    fates.records[n].option = graph.nodes[n].keep_options() - 1;
  const Program program = make_training_program(graph, step_shape(2, 1, 0),
                                                same_for_all(recompute_on_demand(graph, fates), 2));
  const nlohmann::json json = nlohmann::json(to_json(program, {0}, {}));
  const Program again = program_from_json(json, "p.json");
  EXPECT_EQ(program_hash(again), program_hash(program));
  EXPECT_EQ(packed_in(again), packed_in(program));
  EXPECT_GT(packed_in(again), 0);
  prove(again, graph);
  const ModelGraph implied = implied_model(again);
  check_against_model(again, implied);
  check_contents(again, implied);
  // Each backward that takes its record for one of another way is found, and so is no way at all.
  int changed = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].arguments.keep_option != 1) continue;
    Program other = program;
    other.instructions[i].arguments.keep_option = 0;
    EXPECT_THROW(prove(other, graph), ReplayError) << describe(other.instructions[i]);
    other.instructions[i].arguments.keep_option = 2;
    EXPECT_THROW(check_against_model(other, graph), ReplayError);
    ++changed;
  }
  EXPECT_GT(changed, 4);
  // A model that has no further way has none of such a Program.
  EXPECT_THROW(check_against_model(program, random_graph(3)), ReplayError);
}

TEST(KeepOptions, StagesOfAPipelineHaveThem) {
  const ModelGraph whole = with_packed_records(chain(4, 2));
  const StageCut cut = cut_stage(whole, balanced_parts(whole, 2), {{1, true, false}});
  for (std::size_t n = 0; n < cut.nodes.size(); ++n) {
    const NodeSpec& node = cut.graph.nodes[n];
    ASSERT_GE(cut.nodes[n], 0);
    ASSERT_EQ(node.keep_options(), 2);
    EXPECT_TRUE(node.private_slot_bytes.empty() ||
                node.keep_option(1).pinned_values == node.inputs);
  }
  EXPECT_NO_THROW(check_model_graph(cut.graph));
}

std::string refusal(const ModelGraph& graph, const Fates& fates) {
  try {
    recompute_on_demand(graph, fates);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(Fates, WhatNobodyCanPlaceIsRefusedByName) {
  ModelGraph graph = with_packed_records(chain(2, 2));
  graph.nodes[1].further_options[0].exact = false;
  EXPECT_EQ(refusal(graph, keep_everything(graph)), "");
  for (int f = 0; f < fate_count; ++f) {
    const auto fate = static_cast<Fate>(f);
    const bool placed = fate == Fate::Keep || fate == Fate::Recompute;
    Fates value = keep_everything(graph);
    value.values[as_index(graph.nodes[2].output)] = fate;
    Fates record = keep_everything(graph);
    record.records[2] = {fate, 1};
    for (const std::string& said : {refusal(graph, value), refusal(graph, record)}) {
      EXPECT_EQ(said.empty(), placed) << to_string(fate);
      if (placed) continue;
      EXPECT_NE(said.find("\"" + std::string(to_string(fate)) + "\""), std::string::npos) << said;
    }
    if (placed) continue;
    EXPECT_NE(refusal(graph, value).find("value.2"), std::string::npos);
    EXPECT_NE(refusal(graph, record).find("node.2"), std::string::npos);
    EXPECT_NE(refusal(graph, record).find("packed"), std::string::npos);
  }
  // Kept in a way that is not exact, it is approximate whatever it is called.
  Fates loses = keep_everything(graph);
  loses.records[1] = {Fate::Keep, 1};
  EXPECT_NE(refusal(graph, loses).find("\"approximate\""), std::string::npos);
}

// Nobody chooses what would change the training.
TEST(Fates, WaysThatAreNotExactAreNotPlanned) {
  ModelGraph graph = chain(3, 2);
  for (NodeSpec& node : graph.nodes) {
    node.further_options.push_back(packed_record(graph, node));
    KeepOption& lossy = node.further_options.back();
    lossy.exact = false;
    lossy.private_slot_bytes = {64};
    lossy.forward_keep.seconds = lossy.backward.seconds = 0;
  }
  const StepShape step = step_shape(1, 1, 0);
  const ModelGraph plain = chain(3, 2);
  for (const char* name : {"auto", "greedy", "rotor", "search", "annealing"}) {
    const StagePlan all = plan_stage(plain, step, {1LL << 40, name});
    for (const int part : {0, 1, 2}) {
      const std::int64_t budget = all.minimum_budget_bytes +
                                  (all.prediction.peak_bytes - all.minimum_budget_bytes) * part / 2;
      EXPECT_EQ(program_hash(plan_stage(graph, step, {budget, name}).program),
                program_hash(plan_stage(plain, step, {budget, name}).program))
          << name << " " << part;
    }
  }
}

TEST(ModelGraphCheck, FindsWaysToBeKeptThatCannotBe) {
  const auto broken = [](const std::function<void(ModelGraph&)>& breaks) {
    ModelGraph graph = with_packed_records(chain(2, 2));
    ASSERT_NO_THROW(check_model_graph(graph));
    breaks(graph);
    EXPECT_THROW(check_model_graph(graph), InternalError);
  };
  const auto way = [](ModelGraph& graph) -> KeepOption& {
    return graph.nodes[1].further_options[0];
  };
  broken([&](ModelGraph& graph) { way(graph).name = "record"; });
  broken([&](ModelGraph& graph) { way(graph).name = ""; });
  broken([&](ModelGraph& graph) { way(graph).pinned_values = {graph.loss}; });
  broken([&](ModelGraph& graph) { graph.nodes[1].exact = false; });
  broken([&](ModelGraph& graph) {
    graph.nodes[1].splits_backward = true;
    way(graph).backward.seconds += 1;
  });
}

}  // namespace
}  // namespace garonne::plan::test
