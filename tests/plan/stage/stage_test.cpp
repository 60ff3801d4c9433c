// From models to tasks, blocks with options and chains, and back: what the planner thinks of a
// schedule must be what replay says of the Program.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/error.hpp"
#include "plan/chain/chain_json.hpp"
#include "plan/chain/chain_solver.hpp"
#include "plan/graph/graph_solver.hpp"
#include "plan/graph/liveness.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_chain.hpp"
#include "plan/stage/stage_planner.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/stage/task_graph.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

NodeSchedule random_schedule(const ModelGraph& graph, unsigned seed) {
  std::mt19937 random(seed);
  return recompute_on_demand(graph, random_fates(graph, random));
}

const StageSolver& row_of(const std::string& plan) {
  const auto row = std::find_if(stage_solvers().begin(), stage_solvers().end(),
                                [&](const auto& solver) { return solver.name == plan; });
  if (row == stage_solvers().end()) throw std::out_of_range("no plan " + plan);
  return *row;
}

TEST(TaskGraph, TracesWhatReplayPredicts) {
  for (unsigned seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(seed);
    const ModelGraph graph = random_graph(seed);
    const StepShape step = step_shape(1, 1, seed % 3 == 0 ? 1000 : 0);
    const TaskGraph tasks = make_task_graph(graph, step, GradientBuckets::Made);
    for (unsigned again = 0; again < 4; ++again) {
      const NodeSchedule schedule = random_schedule(graph, 10 * seed + again);
      const TaskSchedule as_tasks = to_task_schedule(tasks, schedule);
      EXPECT_TRUE(schedule == to_node_schedule(graph, tasks, as_tasks));
      const LivenessTrace trace = trace_liveness(tasks.graph, as_tasks);
      const Program program = make_training_program(graph, step, same_for_all(schedule, 1));
      const Prediction prediction = replay(program);
      EXPECT_NO_THROW(prove(program, graph));
      EXPECT_DOUBLE_EQ(trace.seconds, prediction.seconds);
      // Between the two lie the sums of the step, which the tasks count from the start.
      EXPECT_GE(trace.peak_bytes + tasks.static_bytes, prediction.peak_bytes);
      EXPECT_LE(trace.peak_bytes + tasks.static_bytes, prediction.peak_bytes + 3 * 64);
    }
  }
}

bool is_only_for_chains(const std::string& plan) {
  const StageSolver& solver = row_of(plan);
  return !solver.schedules && std::any_of(chain_solvers().begin(), chain_solvers().end(),
                                          [&](const auto& one) { return one.name == plan; });
}

// Every policy and solver, from the least budget to that of keeping everything.
TEST(StagePlanner, PlansNodesWithoutGradients) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    const ModelGraph whole = random_graph(seed);
    ModelGraph graph = without_gradients(whole, static_cast<int>(whole.nodes.size()) * 2 / 3);
    for (std::size_t n = 0; n < graph.nodes.size(); n += 2) graph.nodes[n].kind = "attention";
    const StepShape step = step_shape(2, 1, 0);
    for (const auto& [plan, help] : plan_names()) {
      SCOPED_TRACE(std::to_string(seed) + " " + plan);
      if (plan.find("checkmate") == 0 && seed > 1) continue;  // seconds each
      StagePlan fast;
      try {
        fast = plan_stage(graph, step, {1LL << 40, plan});
      } catch (const ConfigError& error) {
        EXPECT_TRUE(plan == "rotor" || is_only_for_chains(plan)) << "the others work on any model";
        EXPECT_EQ(error.key(), "memory.plan");
        EXPECT_NE(std::string(error.what()).find("no single value passes"), std::string::npos);
        continue;
      }
      const std::int64_t least = fast.minimum_budget_bytes;
      ASSERT_GT(least, 0);
      for (const int quarter : {0, 2}) {
        const std::int64_t budget =
            least + std::max<std::int64_t>(0, fast.prediction.peak_bytes - least) * quarter / 4;
        const StagePlan found = plan_stage(graph, step, {budget, plan});
        EXPECT_LE(replay(found.program).peak_bytes, budget);
        EXPECT_NO_THROW(prove(found.program, graph));
        EXPECT_GE(found.prediction.seconds, fast.prediction.seconds - 1e-9);
      }
    }
  }
}

// A stage of one node cannot be cut into a chain.
TEST(StagePlanner, PlansOneNode) {
  ModelGraph graph = chain(0, 0);
  graph.parameters.push_back({"weight", {10}, 10});
  graph.nodes[0].parameters = {0};
  ASSERT_NO_THROW(check_model_graph(graph));
  const StepShape step = step_shape(2, 1, 0);
  EXPECT_FALSE(make_stage_problem(graph, step, GradientBuckets::Made).chain.has_value());
  const StagePlan fast = plan_stage(graph, step, {1LL << 40, "auto"});
  EXPECT_LE(fast.minimum_budget_bytes, fast.prediction.peak_bytes);
  const StagePlan least = plan_stage(graph, step, {fast.minimum_budget_bytes, "auto"});
  EXPECT_EQ(replay(least.program).peak_bytes, fast.minimum_budget_bytes);
  for (const std::string plan : {"rotor", "periodic", "chen-sqrt", "revolve", "best"}) {
    try {
      plan_stage(graph, step, {1LL << 40, plan});
      ADD_FAILURE() << plan << " has nothing to work on";
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      for (const char* part : {"memory.plan", plan.c_str(), "no single value passes",
                               "what does: auto, keep-all", "annealing", "checkmate"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
      EXPECT_EQ(text.find("rotor", text.find("what does")), std::string::npos) << text;
    }
  }
}

// Integer programs are for small graphs; the stage is refused before anything is solved.
TEST(StagePlanner, RefusesGraphsThatAreTooLarge) {
  const ModelGraph graph = chain(200, 2);
  const StepShape step = step_shape(1, 1, 0);
  try {
    plan_stage(graph, step, {1LL << 40, "checkmate"});
    ADD_FAILURE() << "too large";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* part :
         {"memory.plan", "checkmate", "300 tasks", "what does: auto", "annealing"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

// The leanest schedule of a chain runs its nodes quadratically often.
TEST(StageSolver, SchedulesOfDeepModelsAreNoLongerThanAProgramCanBe) {
  const ModelGraph graph = chain(24, 2);
  const StepShape step = step_shape(40, 1, 0);
  StageProblem problem = make_stage_problem(graph, step, GradientBuckets::Made);
  EXPECT_EQ(problem.most_steps, most_steps_of_program / 40);
  const auto peak = [&](const NodeSchedule& schedule) {
    return trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, schedule))
        .peak_bytes;
  };
  const NodeSchedule full = schedule_of(graph, "full");
  for (const auto& solver : stage_solvers()) {
    if (solver.name != "rotor" && solver.name != "search") continue;
    SCOPED_TRACE(solver.name);
    problem.most_steps = most_steps_of_program;
    const std::vector<NodeSchedule> leanest = solver.leanest(problem);
    ASSERT_EQ(leanest.size(), 1U);
    const std::size_t least = full.size() + full.size() / 4;
    EXPECT_GT(leanest[0].size(), 2 * least) << "not what this is to show";
    std::int64_t before = peak(leanest[0]);
    for (const std::size_t most : {2 * least, least}) {
      problem.most_steps = static_cast<std::int64_t>(most);
      const std::vector<NodeSchedule> shorter = solver.leanest(problem);
      ASSERT_EQ(shorter.size(), 1U);
      EXPECT_LE(shorter[0].size(), most);
      EXPECT_GE(peak(shorter[0]), before);
      EXPECT_LE(peak(shorter[0]), peak(full));
      before = peak(shorter[0]);
      for (const auto& schedule : solver.solve(problem, before, shorter[0]))
        EXPECT_LE(schedule.size(), most);
    }
  }
}

TEST(TaskGraph, LaterMicroBatchesFindTheirBuckets) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const ModelGraph graph = random_graph(seed);
    const StepShape step = step_shape(3, 1, 0);
    const TaskGraph later = make_task_graph(graph, step, GradientBuckets::There);
    const NodeSchedule schedule = random_schedule(graph, seed);
    const LivenessTrace trace = trace_liveness(later.graph, to_task_schedule(later, schedule));
    const Prediction prediction =
        replay(make_training_program(graph, step, same_for_all(schedule, 3)));
    EXPECT_GE(trace.peak_bytes + later.static_bytes, prediction.peak_bytes);
    EXPECT_LE(trace.peak_bytes + later.static_bytes, prediction.peak_bytes + 3 * 64);
  }
}

// Blocks as in a transformer: a residual stream with two branches a layer.
ModelGraph residual_model(int layers) {
  ModelGraph graph;
  const auto value = [&](const std::string& name, std::int64_t bytes, bool loaded = false) {
    graph.values.push_back({name, bytes, !loaded, loaded});
    return static_cast<int>(graph.values.size()) - 1;
  };
  const auto node = [&](const std::string& name, int block, std::vector<int> inputs,
                        std::int64_t bytes, double seconds, bool pins) {
    NodeSpec spec;
    spec.name = spec.kind = spec.cost_key = name;
    spec.block = block;
    spec.output = value(name, bytes);
    if (pins) spec.pinned_values = {inputs[0]};
    spec.gradient_aliases.assign(inputs.size(), inputs.size() == 2 && !pins);
    spec.adds_in_place.assign(inputs.size(), false);
    spec.inputs = std::move(inputs);
    spec.forward.seconds = spec.forward_keep.seconds = seconds;
    spec.backward.seconds = 2 * seconds;
    spec.parameters = {static_cast<int>(graph.parameters.size())};
    graph.parameters.push_back({name, {160}, 160, true});
    graph.nodes.push_back(spec);
    return spec.output;
  };
  const int tokens = value("tokens", 64, true);
  int x = node("embedding", 0, {tokens}, 6400, 1, true);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = "layer." + std::to_string(layer) + ".";
    for (const char* branch : {"first", "second"}) {
      const std::string start = prefix + branch + ".";
      const int norm = node(start + "norm", layer + 1, {x}, 6400, 0.1, true);
      const int up = node(start + "up", layer + 1, {norm}, 4 * 6400, 4, true);
      const int act = node(start + "act", layer + 1, {up}, 4 * 6400, 0.4, true);
      const int down = node(start + "down", layer + 1, {act}, 6400, 4, true);
      x = node(start + "residual", layer + 1, {x, down}, 6400, 0.1, false);
    }
  }
  graph.loss = node("loss", layers + 1, {x}, 64, 1, true);
  return graph;
}

TEST(StageChain, CutsWhereOneValuePasses) {
  const ModelGraph graph = residual_model(3);
  const StepShape step = step_shape(1, 1, 0);
  const TaskGraph tasks = make_task_graph(graph, step, GradientBuckets::Made);
  const auto stage = make_stage_chain(graph, tasks);
  ASSERT_TRUE(stage.has_value());
  // Embedding, two branches a layer, loss.
  EXPECT_EQ(stage->chain.blocks.size(), 2U + 6U);
  EXPECT_EQ(stage->chain.input_bytes, 64);
  for (std::size_t b = 0; b < stage->chain.blocks.size(); ++b) {
    const ChainBlock& block = stage->chain.blocks[b];
    EXPECT_EQ(block.options.front().name, "keep");
    std::set<std::string> names;
    for (const auto& option : block.options) {
      EXPECT_TRUE(names.insert(option.name).second);
      EXPECT_GE(option.saved_bytes, block.output_bytes);
    }
    EXPECT_EQ(block.gradient_bytes, 640 * (stage->nodes[b].second - stage->nodes[b].first));
  }
  // Of norm, up and act (the input is at hand): again none, act, norm, norm and act, up and what
  // it takes, all.
  const ChainBlock& branch = stage->chain.blocks[1];
  EXPECT_EQ(branch.options.front().saved_bytes, 10 * 6400);
  EXPECT_EQ(branch.options.back().saved_bytes, 6400);
  EXPECT_GE(branch.options.size(), 4U);
}

class TextsInMemory : public TextCache {
 public:
  std::optional<std::string> find(const std::string& name) override {
    const auto text = texts.find(name);
    if (text == texts.end()) return std::nullopt;
    return text->second;
  }
  void keep(const std::string& name, const std::string& text) override { texts[name] = text; }
  std::string place_of(const std::string& name) const override { return "memory/" + name; }
  void say_damaged(const std::string& reason) override { damaged.push_back(reason); }

  std::map<std::string, std::string> texts;
  std::vector<std::string> damaged;
};

TEST(StageChain, FindsItsOptionsInTheCache) {
  TextsInMemory cache;
  const ModelGraph graph = residual_model(3);
  const StepShape step = step_shape(1, 1, 0);
  const TaskGraph tasks = make_task_graph(graph, step, GradientBuckets::Made);
  const auto solved = make_stage_chain(graph, tasks, &cache);
  // Embedding, loss, and one branch for all equal ones.
  EXPECT_EQ(cache.texts.size(), 3U);
  const auto texts = cache.texts;
  const auto found = make_stage_chain(graph, tasks, &cache);
  EXPECT_EQ(to_json(found->chain), to_json(solved->chain));
  EXPECT_EQ(found->fates, solved->fates);
  // Other costs are other blocks; what is not understood is solved again.
  ModelGraph slower = graph;
  for (auto& node : slower.nodes) node.forward.seconds *= 2;
  make_stage_chain(slower, make_task_graph(slower, step, GradientBuckets::Made), &cache);
  EXPECT_EQ(cache.texts.size(), 6U);
  EXPECT_TRUE(cache.damaged.empty());
  for (auto& [name, text] : cache.texts) text = "{\"format\": 3";
  EXPECT_EQ(to_json(make_stage_chain(graph, tasks, &cache)->chain), to_json(solved->chain));
  ASSERT_EQ(cache.damaged.size(), 3U);
  EXPECT_NE(cache.damaged[0].find("memory/blocks-"), std::string::npos) << cache.damaged[0];
  for (const auto& [name, text] : texts) EXPECT_EQ(cache.texts.at(name), text);
}

// What `garonne solve` answers to the problems that `garonne plan` writes is what memory.plan of
// the same name has to choose from.
TEST(StageSolver, IsTheAlgorithmOfItsName) {
  const ModelGraph graph = residual_model(1);
  const StepShape step = step_shape(1, 1, 0);
  const StageProblem problem = make_stage_problem(graph, step, GradientBuckets::Made);
  const ComputationGraph& tasks = problem.tasks.graph;
  const NodeSchedule all = recompute_on_demand(graph, keep_everything(graph));
  const auto most = trace_liveness(tasks, to_task_schedule(problem.tasks, all)).peak_bytes;
  const auto contains = [](const std::vector<NodeSchedule>& found, const NodeSchedule& wanted) {
    return std::any_of(found.begin(), found.end(), [&](const auto& one) { return one == wanted; });
  };
  int compared = 0;
  for (const std::int64_t percent : {100, 90, 70, 60}) {
    const std::int64_t budget = most * percent / 100;
    SCOPED_TRACE(percent);
    for (const auto& solver : chain_solvers()) {
      SCOPED_TRACE(solver.name);
      if (!refusal_of(solver, problem.chain->chain).empty()) continue;
      const StageSolver& row = row_of(solver.name);
      if (row.schedules || solver.name == "rotor") continue;
      const auto answer = solver.solve(problem.chain->chain, budget, {}).operations;
      if (!answer) continue;
      EXPECT_TRUE(
          contains(row.solve(problem, budget, all), expand(graph, *problem.chain, *answer)));
      ++compared;
    }
    for (const auto& solver : graph_solvers()) {
      SCOPED_TRACE(solver.name);
      const StageSolver& row = row_of(solver.name);
      if (!refusal_of(row, problem).empty()) continue;  // a build without HiGHS
      GraphSolverOptions options;
      options.iterations = solver.is_integer_program ? 100 : 0;
      const GraphAnswer answer = solver.solve(tasks, budget, options);
      const auto found = row.solve(problem, budget, all);
      ASSERT_EQ(found.size(), answer.schedule ? 1U : 0U);
      if (found.empty()) continue;
      EXPECT_TRUE(found[0] == to_node_schedule(graph, problem.tasks, *answer.schedule));
      ++compared;
    }
  }
  EXPECT_GE(compared, 12);
}

TEST(StageSolver, AutoAsksThoseThatItDidBeforeAllHadARow) {
  std::string names;
  for (const auto& solver : stage_solvers()) names += (solver.in_auto ? solver.name : "-") + " ";
  EXPECT_EQ(names.substr(0, names.find('-', names.find("search"))),
            "keep-all selective uniform full greedy rotor search ");
  EXPECT_EQ(names.find("annealing"), std::string::npos);
}

// As in operators: a block with two nodes of one short name.
TEST(StageChain, TellsOptionsApartByTheirNames) {
  ModelGraph graph = residual_model(1);
  for (auto& node : graph.nodes) {
    const std::size_t dot = node.name.rfind('.');
    const bool twice = node.name.ends_with("norm") || node.name.ends_with("act");
    if (twice) node.name = node.name.substr(0, dot) + "." + node.name.substr(dot + 1) + ".same";
  }
  const TaskGraph tasks = make_task_graph(graph, step_shape(1, 1, 0), GradientBuckets::Made);
  const auto stage = make_stage_chain(graph, tasks);
  for (const ChainBlock& block : stage->chain.blocks) {
    std::set<std::string> names;
    for (const auto& option : block.options)
      EXPECT_TRUE(names.insert(option.name).second) << option.name;
  }
  EXPECT_NO_THROW(chain_from_json(nlohmann::json(to_json(stage->chain)), "chain"));
}

// A chain schedule by hand: its seconds are those of the Program, its bytes never less.
TEST(StageChain, ExpandsToWhatItMeans) {
  using Kind = ChainOperationKind;
  const ModelGraph graph = residual_model(2);
  const StepShape step = step_shape(1, 1, 0);
  const TaskGraph tasks = make_task_graph(graph, step, GradientBuckets::Made);
  const StageChain stage = *make_stage_chain(graph, tasks);
  const int blocks = static_cast<int>(stage.chain.blocks.size());
  std::mt19937 random(5);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<ChainOperation> operations;
    std::vector<int> option(stage.chain.blocks.size());
    double seconds = 0;
    for (int b = 0; b < blocks; ++b) {
      const auto& options = stage.chain.blocks[as_index(b)].options;
      option[as_index(b)] = static_cast<int>(random() % options.size());
      const ChainOption& chosen = options[as_index(option[as_index(b)])];
      seconds += chosen.forward.seconds + chosen.backward.seconds;
    }
    const int again = trial % 3 == 0 ? 0 : 1 + static_cast<int>(random() % 3);
    // The first blocks from a checkpoint, the rest kept.
    for (int b = 0; b < again; ++b) {
      operations.push_back({b == 0 ? Kind::ForwardCheckpoint : Kind::ForwardDiscard, b, -1});
      seconds += stage.chain.blocks[as_index(b)].forward.seconds;
    }
    for (int b = again; b < blocks; ++b)
      operations.push_back({Kind::ForwardKeep, b, option[as_index(b)]});
    for (int b = blocks - 1; b >= again; --b) operations.push_back({Kind::Backward, b, -1});
    for (int b = 0; b < again; ++b)
      operations.push_back({Kind::ForwardKeep, b, option[as_index(b)]});
    for (int b = again - 1; b >= 0; --b) operations.push_back({Kind::Backward, b, -1});
    const Prediction prediction = replay(
        make_training_program(graph, step, same_for_all(expand(graph, stage, operations), 1)));
    EXPECT_NEAR(prediction.seconds, seconds, 1e-9);
  }
}

}  // namespace
}  // namespace garonne::plan::test
