// Programs of pipelines: every schedule's set is accepted by replay and comes to the gradients.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/graph/liveness.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/scalar_run.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/pipelines.hpp"

namespace garonne::plan {
namespace {

using test::pipeline_schedules;
using test::programs_of;
using test::splitting_chain;
using test::Stages;
using test::stages_of;

// All pipelines of up to 8 stages and 32 micro-batches.
TEST(PipelinePrograms, AreAcceptedForEverySchedule) {
  const ModelGraph whole = splitting_chain(16, 1);
  for (const auto& name : pipeline_schedules) {
    int accepted = 0;
    for (int stages = 2; stages <= 8; ++stages) {
      for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
        const Stages made = stages_of(name, stages, micro_batches, whole, "keep-all");
        if (made.programs.empty()) continue;
        SCOPED_TRACE(name + " " + std::to_string(stages) + " " + std::to_string(micro_batches));
        ASSERT_NO_THROW(replay_together(made.programs));
        ASSERT_NO_THROW(check_lanes(made.programs, made.lane_numbers));
        ++accepted;
      }
    }
    // Chimera wants an even number of stages and a micro-batch in each direction.
    const int wanted = name == "chimera" ? 4 * 31 : 7 * 32;
    EXPECT_EQ(accepted, wanted) << name;
  }
}

// Models whose values skip stages and whose parameters are used twice, carried out on numbers.
TEST(PipelinePrograms, ComeToTheGradientsOfTheWholeModel) {
  int cut = 0;
  int skipping = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    const ModelGraph whole = test::random_graph(seed);
    for (const auto& name : pipeline_schedules) {
      for (int stages = 2; stages <= 4; ++stages) {
        for (const char* policy : {"keep-all", "full"}) {
          const int micro_batches = 2 * stages;
          const Stages made = stages_of(name, stages, micro_batches, whole, policy);
          if (made.programs.empty()) continue;
          SCOPED_TRACE(name + " seed " + std::to_string(seed) + " stages " +
                       std::to_string(stages) + " " + policy);
          ASSERT_NO_THROW(replay_together(made.programs));
          const test::ScalarStep wanted = test::scalar_reference(whole, micro_batches);
          const test::ScalarStep found = test::scalar_run(made.graphs, made.programs);
          ASSERT_NEAR(found.loss, wanted.loss, 1e-12 * wanted.loss);
          ASSERT_EQ(found.gradients.size(), wanted.gradients.size());
          for (const auto& [parameter, gradient] : wanted.gradients)
            ASSERT_NEAR(found.gradients.at(parameter), gradient, 1e-12 * gradient) << parameter;
          ++cut;
          for (const auto& graph : made.graphs) {
            skipping += static_cast<int>(
                std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const auto& one) {
                  return one.hands_over && graph.values[as_index(one.inputs[0])].received_by >= 0;
                }));
          }
        }
      }
    }
  }
  EXPECT_GT(cut, 200);
  EXPECT_GT(skipping, 100);
}

TEST(PipelinePrograms, RecomputationIsCutByChunkToo) {
  const ModelGraph whole = splitting_chain(20);
  for (const auto& name : pipeline_schedules) {
    for (const char* policy : {"full", "selective", "uniform"}) {
      const auto programs = programs_of(name, 2, 4, whole, policy);
      if (programs.empty()) continue;
      SCOPED_TRACE(name + " " + policy);
      ASSERT_NO_THROW(replay_together(programs));
    }
  }
}

// What the next stage has got it must not get again, whatever a solver recomputes. Where a stage
// has two chunks the first one's nodes that hand over lie within what a chain of blocks runs again.
// With chimera a micro-batch comes to one of them only: Programs that recompute for the other are
// refused.
TEST(PipelinePrograms, EverySolverHandsOverOnce) {
  constexpr int micro_batches = 4;
  const ModelGraph whole = splitting_chain(16);
  PipelineRequest request;
  request.stages = 2;
  request.micro_batches = micro_batches;
  for (const std::string name : {"interleaved", "zb-v", "chimera"}) {
    SCOPED_TRACE(name);
    PipelineStage cut = make_pipeline_stage(whole, make_pipeline_schedule(name, request), 0);
    const ModelGraph& graph = cut.cut.graph;
    StepShape step;
    step.micro_batches = micro_batches;
    step.optimizer_states = {{.name = "first_moment"}};
    step.pipeline = std::move(cut.place);
    step.world_group = step.pipeline.group = {0, 1};
    step.data_group = {0};
    const StageProblem problem = make_stage_problem(graph, step, GradientBuckets::Made);
    const NodeSchedule all = recompute_on_demand(graph, keep_everything(graph));
    const std::int64_t most =
        trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, all)).peak_bytes;
    const auto forwards = [&](const NodeSchedule& schedule, bool handing_over) {
      return std::count_if(schedule.begin(), schedule.end(), [&](const NodeStep& one) {
        return one.forward() && (!handing_over || graph.nodes[as_index(one.node)].hands_over);
      });
    };
    const auto handed_over = forwards(all, true);
    ASSERT_EQ(handed_over, name == std::string("interleaved") ? 2 : 1);
    for (const StageSolver& solver : stage_solvers()) {
      SCOPED_TRACE(solver.name);
      if (solver.name == "checkmate") continue;  // a minute, and no other path than its rounding
      std::vector<NodeSchedule> found = solver.leanest(problem);
      const std::vector<std::int64_t> percents = test::whole_sweep()
                                                     ? std::vector<std::int64_t>{90, 70, 50, 30}
                                                     : std::vector<std::int64_t>{70, 30};
      for (const std::int64_t percent : percents) {
        const auto more = solver.solve(problem, most * percent / 100, all);
        found.insert(found.end(), more.begin(), more.end());
      }
      std::int64_t recomputed = 0;
      for (const NodeSchedule& schedule : found) {
        EXPECT_EQ(forwards(schedule, true), handed_over);
        recomputed += forwards(schedule, false) - forwards(all, false);
        const Program program =
            make_training_program(graph, step, same_for_all(schedule, micro_batches));
        EXPECT_NO_THROW(replay(program));
        EXPECT_NO_THROW(prove(program, graph));
      }
      // Of the stage of a model without attention all is kept.
      EXPECT_EQ(recomputed > 0, solver.name != "keep-all" && solver.name != "megatron-selective");
    }
  }
}

// Whatever of a record outlives its micro-batch's turn was kept for nothing: `full` runs every
// block again but one whose backward is the next operation of the stage.
TEST(PipelinePrograms, FullKeepsNoRecordWhileAnotherMicroBatchIsUnderWay) {
  constexpr int micro_batches = 6;
  ModelGraph whole = test::chain(16, 2);
  whole.nodes.back().private_slot_bytes = {64};
  const auto& registry = stage_solvers();
  const auto full = std::find_if(registry.begin(), registry.end(),
                                 [](const auto& row) { return row.name == "full"; });
  int kept = 0;
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "chimera"}) {
    PipelineRequest request;
    request.stages = 4;
    request.micro_batches = micro_batches;
    for (int stage = 0; stage < request.stages; ++stage) {
      SCOPED_TRACE(name + " stage " + std::to_string(stage));
      PipelineStage cut = make_pipeline_stage(whole, make_pipeline_schedule(name, request), stage);
      StepShape step;
      step.micro_batches = micro_batches;
      step.optimizer_states = {{.name = "first_moment"}};
      step.pipeline = std::move(cut.place);
      step.world_group = step.pipeline.group = {0, 1, 2, 3};
      step.data_group = {stage};
      const StageProblem problem = make_stage_problem(cut.cut.graph, step, GradientBuckets::Made);
      const auto leanest = full->leanest(problem);
      ASSERT_EQ(leanest.size(), 1U);
      const Program program =
          make_training_program(cut.cut.graph, step, same_for_all(leanest[0], micro_batches));
      std::vector<int> owner(program.buffers.size(), -1);  // of live records: the micro-batch
      for (const Instruction& instruction : program.instructions) {
        const bool computes =
            is_forward(instruction.operation) || is_backward(instruction.operation);
        for (std::size_t id = 0; computes && id < owner.size(); ++id) {
          EXPECT_TRUE(owner[id] < 0 || owner[id] == instruction.micro_batch)
              << program.buffers[id].name << " during " << describe(instruction);
        }
        for (const int id : instruction.writes) {
          if (program.buffers[as_index(id)].kind == BufferKind::Record)
            owner[as_index(id)] = instruction.micro_batch;
        }
        for (const int id : instruction.frees) owner[as_index(id)] = -1;
        const bool first =
            instruction.operation == Operation::ForwardKeep && !instruction.recompute;
        kept += first && !instruction.arguments.record.empty();
      }
    }
  }
  // On the last stage of 1f1b, of varuna and of the others with their backwards in that order.
  EXPECT_GE(kept, 2 * micro_batches);
}

// A stage holds the activations of as many micro-batches as the schedule says: with one forward,
// one backward the first stage holds more than the last.
TEST(PipelinePrograms, EarlyStagesHoldMoreMicroBatches) {
  const ModelGraph whole = splitting_chain(34);
  const auto programs = programs_of("1f1b", 4, 8, whole, "keep-all");
  ASSERT_EQ(programs.size(), 4U);
  const auto predictions = replay_together(programs);
  EXPECT_GT(predictions[0].peak_bytes, predictions[2].peak_bytes);
  const auto flooded = replay_together(programs_of("gpipe", 4, 8, whole, "keep-all"));
  EXPECT_GT(flooded[0].peak_bytes, predictions[0].peak_bytes);
}

// Messages from one stage to the next queue on their link: all forwards of gpipe come before its
// backwards, so a link that is slow beside the computation is busy one way and then the other.
TEST(PipelinePrograms, MessagesOfOneLinkQueue) {
  constexpr int micro_batches = 8;
  constexpr double slow = 1000;
  auto programs = programs_of("gpipe", 2, micro_batches, splitting_chain(4), "keep-all");
  const double computed = replay_together(programs)[0].seconds;
  for (Program& program : programs) {
    for (Instruction& instruction : program.instructions) {
      if (is_message(instruction.operation)) instruction.seconds = slow;
    }
  }
  const double seconds = replay_together(programs)[0].seconds;
  EXPECT_GE(seconds, 2 * micro_batches * slow);
  EXPECT_LE(seconds, 2 * micro_batches * slow + computed);
}

// Without tensor ranks there is nothing that a pass could compute beside.
TEST(PipelinePrograms, WhatMayOverlapRunsInTurn) {
  const ModelGraph whole = splitting_chain(12);
  PipelineRequest request;
  request.stages = 4;
  request.micro_batches = 12;
  const PipelineSchedule overlapping = make_pipeline_schedule("dualpipev", request);
  ASSERT_TRUE(overlapping.has_overlaps());
  PipelineSchedule plain = overlapping;
  for (auto& order : plain.order) {
    for (PipelineOperation& operation : order) operation.overlaps_next = false;
  }
  const auto programs = stages_of(overlapping, whole, "full").programs;
  const auto expected = stages_of(plain, whole, "full").programs;
  for (std::size_t stage = 0; stage < 4; ++stage)
    EXPECT_EQ(program_hash(programs.at(stage)), program_hash(expected.at(stage)));
}

}  // namespace
}  // namespace garonne::plan
