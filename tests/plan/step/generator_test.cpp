// Generators over models of all shapes: what they make is legal, computes the right thing, and is
// predicted right. The checks here know neither generator nor replay from the inside.
#include "plan/step/generator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/grid/block_table.hpp"
#include "plan/program/program_meaning.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_planner.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::plan::test {
namespace {

TEST(Generators, MakeRightProgramsOfAnyModel) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const ModelGraph graph = random_graph(seed);
    ASSERT_NO_THROW(check_model_graph(graph));
    for (const auto& [name, schedule] : policy_schedules(graph)) {
      unsigned turn = seed;
      for (const int micro_batches : {1, 2, 4}) {
        for (const int ranks : {1, 2, 3}) {
          for (const std::int64_t bucket : {0, 64, 1000, 1 << 20}) {
            if (HasFailure()) return;
            // A quarter, another one with every seed.
            if (++turn % 4 != 0 && !whole_sweep()) continue;
            SCOPED_TRACE("seed " + std::to_string(seed) + " " + name + " micro-batches " +
                         std::to_string(micro_batches) + " ranks " + std::to_string(ranks) +
                         " bucket " + std::to_string(bucket));
            StepShape step = step_shape(micro_batches, ranks, bucket);
            step.reduction_bytes = {0, 1000 * (seed % 3)};
            check_program(graph, step, schedule);
          }
        }
      }
    }
  }
}

TEST(Generators, NodesWithoutGradientsHaveNoBackward) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const ModelGraph whole = random_graph(seed);
    const int nodes = static_cast<int>(whole.nodes.size());
    for (const int first : {1, nodes / 2, nodes - 1}) {
      const ModelGraph graph = without_gradients(whole, first);
      ASSERT_NO_THROW(check_model_graph(graph));
      for (const auto& [name, schedule] : policy_schedules(graph)) {
        if (HasFailure()) return;
        SCOPED_TRACE("seed " + std::to_string(seed) + " " + name + " without gradients " +
                     std::to_string(first));
        check_program(graph, step_shape(2, 2, 1000), schedule);
      }
    }
  }
}

TEST(BlockCosts, StagesDoNotBeginBehindValuesWithoutGradients) {
  // Nodes 0 to 4 of blocks 0, 0, 1, 1, 2, … have none, so the third block reads such a value.
  const auto blocks = block_costs(without_gradients(chain(4, 2), 5));
  std::vector<bool> may_begin;
  for (const auto& block : blocks) may_begin.push_back(block.may_begin_part);
  EXPECT_EQ(may_begin, (std::vector<bool>{true, false, false, true, true}));
}

TEST(Generators, WhatIsKeptForNoBackwardIsRefused) {
  ModelGraph graph = without_gradients(chain(2, 2), 1);
  ASSERT_NO_THROW(check_model_graph(graph));
  graph.nodes[0].private_slot_bytes = {64};
  EXPECT_THROW(check_model_graph(graph), InternalError);
}

// Complex numbers are whole wherever a bucket is cut.
TEST(Generators, ComplexParametersBeginAtEvenPlaces) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    ModelGraph graph = random_graph(seed);
    for (auto& parameter : graph.parameters) {
      parameter.complex = seed % 2 == 0 || parameter.elements % 3 == 0;
      if (parameter.complex) parameter.elements += parameter.elements % 2;
    }
    for (const int zero : {0, 1, 3}) {
      StepShape step = step_shape(1, 3, 2000);
      step.zero = zero;
      const auto keep_all = recompute_on_demand(graph, keep_everything(graph));
      const Program program = make_training_program(graph, step, same_for_all(keep_all, 1));
      for (const auto& bucket : program.buckets) {
        for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
          const bool complex = graph.parameters[as_index(bucket.parameters[k])].complex;
          EXPECT_TRUE(!complex || bucket.offsets[k] % 2 == 0);
        }
        for (int member = 0; zero > 0 && member < 3; ++member) {
          for (const auto& piece : shard_pieces(bucket, member)) {
            if (!graph.parameters[as_index(piece.parameter)].complex) continue;
            EXPECT_EQ(piece.first % 2, 0);
            EXPECT_EQ(piece.elements % 2, 0);
          }
        }
      }
    }
  }
}

TEST(Generators, AnyChoiceOfBlocksIsRight) {
  for (unsigned seed = 100; seed < 130; ++seed) {
    const ModelGraph graph = random_graph(seed);
    for (unsigned bits = 0; bits < 1U << graph.blocks(); ++bits) {
      RecomputeChoice choice;
      for (int block = 0; block < graph.blocks(); ++block)
        choice.push_back((bits >> block & 1) != 0);
      if (HasFailure()) return;
      SCOPED_TRACE("seed " + std::to_string(seed) + " choice " + std::to_string(bits));
      check_program(graph, step_shape(2, 2, 500), recompute_blocks(graph, choice));
    }
  }
}

// A node that reads one value twice, as x + x does: refused as a model, or done right.
TEST(Generators, OneValueReadTwiceByANode) {
  for (const bool aliases : {false, true}) {
    for (const bool in_place : {false, true}) {
      ModelGraph graph = chain(2, 2);
      NodeSpec& node = graph.nodes[1];
      node.inputs = {node.inputs[0], node.inputs[0]};
      node.gradient_aliases = {aliases, aliases};
      node.adds_in_place = {in_place, in_place};
      try {
        check_model_graph(graph);
      } catch (const InternalError&) {
        continue;
      }
      check_program(graph, step_shape(2, 1, 0), schedule_of(graph, "keep-all"));
    }
  }
}

TEST(Generators, MastersCountAsStatic) {
  StepShape step = step_shape(2, 1, 0);
  step.element_bytes = {.parameter = 2, .master = 4, .gradient = 4, .state = 4};
  check_program(random_graph(7), step, schedule_of(random_graph(7), "keep-all"));
  step.granularity = 512;
  ModelGraph coarse = chain(3, 2);
  for (auto& value : coarse.values) value.bytes = round_up(value.bytes, step.granularity);
  check_program(coarse, step, schedule_of(coarse, "full"));
}

// What a tier counts in is the Program's, and every buffer is a multiple of it.
TEST(Generators, CountInTheGranularityOfTheDevice) {
  for (const std::int64_t granularity : {64, 512, 4096}) {
    StepShape step = step_shape(2, 2, 1000);
    step.granularity = granularity;
    const ModelGraph graph = random_graph(5);
    for (const char* policy : {"keep-all", "full"}) {
      const Program program =
          make_training_program(graph, step, same_for_all(schedule_of(graph, policy), 2));
      EXPECT_EQ(program.tier(Tier::Device).granularity, granularity);
      for (const Buffer& buffer : program.buffers) {
        EXPECT_EQ(buffer.tier, Tier::Device);
        EXPECT_EQ(buffer.bytes % granularity, 0) << buffer.name;
      }
    }
    EXPECT_EQ(make_forward_program(graph, step, graph.loss).tier(Tier::Device).granularity,
              granularity);
  }
}

TEST(Generators, FullNeedsLessThanKeepAllOnDeepChains) {
  for (const int blocks : {2, 4, 12, 48}) {
    const ModelGraph graph = chain(blocks, 4);
    for (const int micro_batches : {1, 2, 4}) {
      const StepShape step = step_shape(micro_batches, 1, 0);
      const auto peak = [&](const char* name) {
        return replay(make_training_program(
            graph, step, same_for_all(schedule_of(graph, name), step.micro_batches)));
      };
      const Prediction all = peak("keep-all");
      const Prediction full = peak("full");
      EXPECT_LT(full.peak_bytes, all.peak_bytes) << blocks;
      EXPECT_GT(full.seconds, all.seconds) << "nothing was recomputed";
    }
  }
  // Deep enough, the records of one block and the inputs of all are what is left: 4096 a block,
  // against four times 4096 + 1088 and the gradients.
  const auto without_static = [](const char* name) {
    const ModelGraph graph = chain(48, 4);
    const Prediction prediction = replay(make_training_program(
        graph, step_shape(1, 1, 0), same_for_all(schedule_of(graph, name), 1)));
    return prediction.peak_bytes - prediction.static_bytes;
  };
  EXPECT_LT(without_static("full"), without_static("keep-all") / 3);
}

const StageSolver& policy_row(const std::string& name) {
  const auto& rows = stage_solvers();
  return *std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
}

TEST(Generators, MegatronSelectiveRunsAttentionAgainAndNothingElse) {
  const StageSolver& policy = policy_row("megatron-selective");
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    ModelGraph graph = random_graph(seed);
    EXPECT_TRUE(policy.schedules(graph).empty());
    // Heads of their own, and heads that share keys and values.
    for (std::size_t n = seed % 3; n + 1 < graph.nodes.size(); n += 3)
      graph.nodes[n].kind = (n + seed) % 2 == 0 ? "attention" : "grouped_attention";
    const auto schedules = policy.schedules(graph);
    ASSERT_EQ(schedules.size(), 1U);
    check_program(graph, step_shape(2, 2, 500), schedules[0]);
    std::vector<int> runs(graph.nodes.size(), 0);
    for (const NodeStep& one : schedules[0]) runs[as_index(one.node)] += one.forward() ? 1 : 0;
    for (std::size_t n = 0; n < runs.size(); ++n) {
      const NodeSpec& node = graph.nodes[n];
      const bool core = node.kind == "attention" || node.kind == "grouped_attention";
      EXPECT_LE(runs[n], core ? 2 : 1) << node.name;
      if (core && !node.private_slot_bytes.empty()) {
        EXPECT_EQ(runs[n], 2) << node.name;
      }
    }
  }
}

TEST(Generators, MegatronSelectiveTakesLessThanKeepAllAndIsRefusedWithoutAttention) {
  ModelGraph graph = chain(12, 4);
  const StepShape step = step_shape(2, 1, 0);
  try {
    plan_stage(graph, step, {1LL << 40, "megatron-selective"});
    ADD_FAILURE() << "nothing to run again";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* part : {"memory.plan", "megatron-selective", "attention", "what does: auto"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  for (std::size_t n = 2; n + 1 < graph.nodes.size(); n += 4) graph.nodes[n].kind = "attention";
  const StagePlan all = plan_stage(graph, step, {1LL << 40, "keep-all"});
  const StagePlan some = plan_stage(graph, step, {1LL << 40, "megatron-selective"});
  const StagePlan full = plan_stage(graph, step, {1LL << 40, "full"});
  EXPECT_LT(some.prediction.peak_bytes, all.prediction.peak_bytes);
  EXPECT_GT(some.prediction.peak_bytes, full.prediction.peak_bytes);
  EXPECT_GT(some.prediction.seconds, all.prediction.seconds);
  EXPECT_LT(some.prediction.seconds, full.prediction.seconds);
}

TEST(Generators, ForwardOnlyKeepsNothing) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const ModelGraph graph = random_graph(seed);
    const StepShape step = step_shape(4, 2, 0);
    const Program program = make_forward_program(graph, step, graph.loss);
    const Prediction prediction = replay(program);
    prove(program, graph);
    EXPECT_EQ(prediction.peak_bytes, slow_peak(program));
    EXPECT_EQ(prediction.static_bytes, static_bytes_by_formula(graph, step))
        << "states stay where they are during an evaluation";
    for (const auto& instruction : program.instructions) {
      EXPECT_FALSE(instruction.channel.has_value());
      EXPECT_TRUE(instruction.operation == Operation::Load ||
                  instruction.operation == Operation::Forward ||
                  instruction.operation == Operation::Report);
    }
    const ModelGraph deep = chain(48, 4);
    EXPECT_LT(replay(make_forward_program(deep, step, deep.loss)).peak_bytes -
                  static_bytes_by_formula(deep, step),
              5 * 4096)
        << "two values at a time";
  }
}

TEST(Generators, AnyFatesAreRight) {
  for (unsigned seed = 200; seed < 300; ++seed) {
    const ModelGraph graph = random_graph(seed);
    std::mt19937 random(seed);
    const Fates fates = random_fates(graph, random);
    if (HasFailure()) return;
    SCOPED_TRACE("seed " + std::to_string(seed));
    check_program(graph, step_shape(2, 2, 500), recompute_on_demand(graph, fates));
  }
}

TEST(Generators, MicroBatchesMayDiffer) {
  const ModelGraph graph = random_graph(11);
  const StepShape step = step_shape(3, 1, 0);
  StepSchedule schedule;
  schedule.schedules = {schedule_of(graph, "full"), schedule_of(graph, "keep-all")};
  schedule.of_micro_batch = {0, 1, 0};
  const Program program = make_training_program(graph, step, schedule);
  EXPECT_EQ(replay(program).peak_bytes, slow_peak(program));
  check_meaning(graph, program);
}

TEST(ModelGraphCheck, FindsContradictions) {
  const auto broken = [](const std::function<void(ModelGraph&)>& breaks) {
    ModelGraph graph = chain(2, 2);
    breaks(graph);
    EXPECT_THROW(check_model_graph(graph), InternalError);
  };
  broken([](ModelGraph& graph) { graph.nodes[1].block = 2; });
  broken([](ModelGraph& graph) { std::swap(graph.nodes[0], graph.nodes[1]); });
  broken([](ModelGraph& graph) { graph.nodes[2].output = graph.nodes[1].output; });
  broken([](ModelGraph& graph) { graph.nodes[2].gradient_aliases.clear(); });
  broken([](ModelGraph& graph) { graph.nodes[2].parameters = {99}; });
  ModelGraph unused = chain(2, 2);
  unused.parameters.push_back({"unused", {1}, 1, false});
  EXPECT_THROW(make_training_program(unused, step_shape(1, 1, 0),
                                     same_for_all(schedule_of(unused, "keep-all"), 1)),
               InternalError);
}

}  // namespace
}  // namespace garonne::plan::test
