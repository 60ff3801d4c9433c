// Programs of pipelines: every schedule's set is accepted by replay, broken sets are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "plan/graph/liveness.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/scalar_run.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan {
namespace {

// A chain of which every second node splits its backward.
ModelGraph chain_graph(int blocks, int nodes_a_block = 2) {
  ModelGraph graph = test::chain(blocks, nodes_a_block);
  for (std::size_t n = 0; n + 1 < graph.nodes.size(); n += 2) {
    NodeSpec& node = graph.nodes[n];
    node.private_slot_bytes.clear();
    node.splits_backward = true;
    node.backward_weight.seconds = 1;
    node.backward.seconds = 1;
  }
  return graph;
}

struct Stages {
  std::vector<ModelGraph> graphs;
  std::vector<Program> programs;
  int lane_numbers = 1;
};

// The Programs of all stages.
Stages stages_of(const PipelineSchedule& schedule, const ModelGraph& whole,
                 const std::string& policy) {
  Stages made;
  for (int stage = 0; stage < schedule.devices; ++stage) {
    PipelineStage cut = make_pipeline_stage(whole, schedule, stage);
    StepShape step;
    step.micro_batches = schedule.micro_batches;
    step.optimizer_states = {{.name = "first_moment"}};
    step.pipeline = std::move(cut.place);
    for (int rank = 0; rank < schedule.devices; ++rank) {
      step.world_group.push_back(rank);
      step.pipeline.group.push_back(rank);
    }
    step.data_group = {stage};
    made.programs.push_back(make_training_program(
        cut.cut.graph, step,
        same_for_all(test::schedule_of(cut.cut.graph, policy), schedule.micro_batches)));
    made.programs.back().rank = stage;
    made.graphs.push_back(std::move(cut.cut.graph));
    made.lane_numbers = step.pipeline.lane_numbers;
  }
  return made;
}

// None where the schedule cannot be made for so many micro-batches or the model is too small.
Stages stages_of(const std::string& name, int stages, int micro_batches, const ModelGraph& whole,
                 const std::string& policy) {
  try {
    PipelineRequest request;
    request.stages = stages;
    request.micro_batches = micro_batches;
    return stages_of(make_pipeline_schedule(name, request), whole, policy);
  } catch (const ConfigError&) {
    return {};
  }
}

std::vector<Program> programs_of(const std::string& name, int stages, int micro_batches,
                                 const ModelGraph& whole, const std::string& policy) {
  return stages_of(name, stages, micro_batches, whole, policy).programs;
}

const std::vector<std::string> schedules = {"gpipe", "1f1b",  "interleaved", "chimera",
                                            "zb-h1", "zb-h2", "zb-v",        "dualpipev"};

// All pipelines of up to 8 stages and 32 micro-batches.
TEST(PipelinePrograms, AreAcceptedForEverySchedule) {
  const ModelGraph whole = chain_graph(16, 1);
  for (const auto& name : schedules) {
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
    for (const auto& name : schedules) {
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
                  return one.hands_over && graph.values[test::at(one.inputs[0])].received_by >= 0;
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
  const ModelGraph whole = chain_graph(20);
  for (const auto& name : schedules) {
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
  const ModelGraph whole = chain_graph(16);
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
        return one.forward() && (!handing_over || graph.nodes[test::at(one.node)].hands_over);
      });
    };
    const auto handed_over = forwards(all, true);
    ASSERT_EQ(handed_over, name == std::string("interleaved") ? 2 : 1);
    for (const StageSolver& solver : stage_solvers()) {
      SCOPED_TRACE(solver.name);
      if (solver.name == "checkmate") continue;  // a minute, and no other path than its rounding
      std::vector<NodeSchedule> found = solver.leanest(problem);
      for (const std::int64_t percent : {90, 70, 50, 30}) {
        const auto more = solver.solve(problem, most * percent / 100, all);
        found.insert(found.end(), more.begin(), more.end());
      }
      std::int64_t recomputed = 0;
      for (const NodeSchedule& schedule : found) {
        EXPECT_EQ(forwards(schedule, true), handed_over);
        recomputed += forwards(schedule, false) - forwards(all, false);
        EXPECT_NO_THROW(
            replay(make_training_program(graph, step, same_for_all(schedule, micro_batches))));
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
          if (program.buffers[test::at(id)].kind == BufferKind::Record)
            owner[test::at(id)] = instruction.micro_batch;
        }
        for (const int id : instruction.frees) owner[test::at(id)] = -1;
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
  const ModelGraph whole = chain_graph(34);
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
  auto programs = programs_of("gpipe", 2, micro_batches, chain_graph(4), "keep-all");
  const double computed = replay_together(programs)[0].seconds;
  for (Program& program : programs) {
    for (Instruction& instruction : program.instructions) {
      if (instruction.operation == Operation::Send || instruction.operation == Operation::Receive)
        instruction.seconds = slow;
    }
  }
  const double seconds = replay_together(programs)[0].seconds;
  EXPECT_GE(seconds, 2 * micro_batches * slow);
  EXPECT_LE(seconds, 2 * micro_batches * slow + computed);
}

// Breaks the first instruction of a kind on one rank; the error names an instruction of `named`.
void expect_refused(std::vector<Program> programs, int rank,
                    const std::function<bool(const Instruction&)>& wanted,
                    const std::function<void(Program&, std::size_t)>& breaking,
                    const std::string& message) {
  auto& instructions = programs[static_cast<std::size_t>(rank)].instructions;
  const auto found = std::find_if(instructions.begin(), instructions.end(), wanted);
  ASSERT_NE(found, instructions.end());
  breaking(programs[static_cast<std::size_t>(rank)],
           static_cast<std::size_t>(found - instructions.begin()));
  try {
    replay_together(programs);
    FAIL() << "accepted; wanted: " << message;
  } catch (const ReplayError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(message), std::string::npos) << text;
    // The instruction is named by number and by what it does.
    const auto number = static_cast<std::size_t>(error.instruction());
    const bool named = std::any_of(programs.begin(), programs.end(), [&](const Program& program) {
      return number < program.instructions.size() &&
             text.find("instruction " + std::to_string(number) + ", " +
                       describe(program.instructions[number])) != std::string::npos;
    });
    EXPECT_TRUE(named) << text;
  }
}

// Takes an instruction and its wait out, as a rank that forgets them.
void lose(Program& program, std::size_t lost) {
  auto& instructions = program.instructions;
  for (std::size_t i = instructions.size(); i-- > 0;) {
    const bool waits = instructions[i].completes == static_cast<int>(lost);
    if (!waits && i != lost) continue;
    instructions[i].operation = Operation::Norm;  // keeps the numbers of the others
    instructions[i].channel.reset();
    instructions[i].lane = Lane::Compute;
    instructions[i].arguments = {};
    instructions[i].completes = -1;
  }
}

// Flags that only a simulation looks at.
TEST(PipelinePrograms, WhatMayOverlapRunsInTurn) {
  const ModelGraph whole = chain_graph(12);
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

// The same list for every schedule.
TEST(PipelinePrograms, BrokenSetsOfEveryScheduleAreRefused) {
  const ModelGraph whole = chain_graph(12);
  for (const auto& name : schedules) {
    SCOPED_TRACE(name);
    const auto programs = programs_of(name, 4, 8, whole, "keep-all");
    ASSERT_EQ(programs.size(), 4U);
    const auto receives = [](const Instruction& one) {
      return one.operation == Operation::Receive;
    };
    expect_refused(programs, 2, receives, lose, "its message is never received");
    expect_refused(
        programs, 1, [](const Instruction& one) { return one.operation == Operation::Send; }, lose,
        "no such message is sent");
    expect_refused(
        programs, 3,
        [](const Instruction& one) {
          return one.operation == Operation::Backward && !one.frees.empty();
        },
        [](Program& program, std::size_t i) {
          auto& before = program.instructions[i - 1].frees;
          before.push_back(program.instructions[i].frees.back());
          program.instructions[i].frees.pop_back();
        },
        "which is not live");
  }
}

// Tied parameters and the sums of the step: the last stage takes them the other way round.
TEST(PipelinePrograms, SwappedCollectivesOnOnePeerAreRefused) {
  const ModelGraph whole = chain_graph(12);
  const auto programs = programs_of("chimera", 2, 4, whole, "keep-all");
  ASSERT_EQ(programs.size(), 2U);
  const auto tied = [](const Instruction& one) {
    return one.operation == Operation::AllReduce && one.channel->group == GroupAxis::Tied;
  };
  expect_refused(
      programs, 1, tied,
      [&](Program& program, std::size_t i) {
        auto& instructions = program.instructions;
        const auto next = std::find_if(instructions.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                       instructions.end(), tied);
        std::swap(instructions[i].channel, next->channel);
      },
      "meets none like it");
}

TEST(PipelinePrograms, BrokenSetsAreRefusedWithTheInstruction) {
  const ModelGraph whole = chain_graph(12);
  const auto programs = programs_of("1f1b", 2, 4, whole, "keep-all");
  ASSERT_EQ(programs.size(), 2U);
  const auto sends = [](const Instruction& one) { return one.operation == Operation::Send; };
  const auto receives = [](const Instruction& one) { return one.operation == Operation::Receive; };
  expect_refused(
      programs, 0, sends, [](Program& p, std::size_t i) { p.instructions[i].channel->tag += 1000; },
      "no such message is sent");
  expect_refused(
      programs, 1, receives,
      [](Program& p, std::size_t i) { p.instructions[i].channel->bytes /= 2; }, "expects");
  expect_refused(
      programs, 1, receives, [](Program& p, std::size_t i) { p.instructions[i].channel->peer = 7; },
      "outside its group");
  // What arrives is used before it is waited for.
  expect_refused(
      programs, 1, [](const Instruction& one) { return one.operation == Operation::Wait; },
      [](Program& p, std::size_t i) { std::swap(p.instructions[i], p.instructions[i + 1]); },
      "while an asynchronous instruction");
}

TEST(PipelinePrograms, MessagesOutOfTheOrderOfTheirLaneAreFound) {
  Stages made = stages_of("1f1b", 2, 4, chain_graph(12), "keep-all");
  ASSERT_EQ(made.programs.size(), 2U);
  std::vector<Instruction*> receives;
  for (auto& instruction : made.programs[1].instructions) {
    if (instruction.operation == Operation::Receive) receives.push_back(&instruction);
  }
  ASSERT_GE(receives.size(), 2U);
  std::swap(receives[0]->channel->tag, receives[1]->channel->tag);
  EXPECT_NO_THROW(replay_together(made.programs));
  EXPECT_THROW(check_lanes(made.programs, made.lane_numbers), ReplayError);
}

Program message_program(int rank) {
  Program program;
  program.rank = rank;
  for (const char* name : {"in", "out"}) {
    Buffer buffer;
    buffer.name = name;
    buffer.bytes = 64;
    buffer.live_at_end = true;
    program.buffers.push_back(buffer);
  }
  program.buffers[1].live_at_start = true;
  return program;
}

Instruction message(Operation operation, int rank, bool blocking) {
  Instruction instruction;
  instruction.operation = operation;
  Channel channel;
  channel.group = GroupAxis::Pipeline;
  channel.members = {0, 1};
  channel.peer = 1 - rank;
  channel.bytes = 64;
  instruction.channel = channel;
  instruction.lane = blocking ? Lane::Compute : Lane::Message;
  (operation == Operation::Send ? instruction.reads
                                : instruction.writes) = {operation == Operation::Send ? 1 : 0};
  return instruction;
}

Instruction wait_for(int number) {
  Instruction wait;
  wait.operation = Operation::Wait;
  wait.completes = number;
  return wait;
}

// Which instruction is stuck on which rank, or nothing.
std::string stuck(const std::vector<Program>& programs) {
  try {
    replay_together(programs);
    return "";
  } catch (const ReplayError& error) {
    EXPECT_NE(std::string(error.what()).find("circle"), std::string::npos) << error.what();
    return error.what();
  }
}

// Both stages wait for the other's message before they send their own.
TEST(PipelinePrograms, ACircleOfWaitsIsRefused) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    programs.push_back(message_program(rank));
    programs.back().instructions = {message(Operation::Receive, rank, false), wait_for(0),
                                    message(Operation::Send, rank, false), wait_for(2)};
  }
  EXPECT_NE(stuck(programs).find("instruction 1"), std::string::npos) << stuck(programs);
}

// Both send before they receive, and a send that blocks is over when it is received.
TEST(PipelinePrograms, ACycleOfBlockingSendsIsRefused) {
  for (const bool blocking : {true, false}) {
    std::vector<Program> programs;
    for (int rank = 0; rank < 2; ++rank) {
      programs.push_back(message_program(rank));
      programs.back().instructions = {message(Operation::Send, rank, blocking),
                                      message(Operation::Receive, rank, blocking)};
      if (!blocking) {
        programs.back().instructions.push_back(wait_for(0));
        programs.back().instructions.push_back(wait_for(1));
      }
    }
    if (blocking) {
      EXPECT_NE(stuck(programs).find("instruction 0"), std::string::npos) << stuck(programs);
    } else {
      EXPECT_EQ(stuck(programs), "");
    }
    // The other way round on one of them there is no circle.
    if (!blocking) continue;
    std::swap(programs[1].instructions[0], programs[1].instructions[1]);
    EXPECT_EQ(stuck(programs), "");
  }
}

TEST(StageCut, PartsAreBalanced) {
  const ModelGraph whole = chain_graph(10);
  const auto parts = balanced_parts(whole, 3);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts.front().first, 0);
  EXPECT_EQ(parts.back().last, static_cast<int>(whole.nodes.size()));
  for (std::size_t k = 1; k < parts.size(); ++k) EXPECT_EQ(parts[k].first, parts[k - 1].last);
  EXPECT_THROW(balanced_parts(whole, 1000), ConfigError);
}

TEST(StageCut, PartsBeginWhereGradientsGoBack) {
  // Nodes 0 to 4 of blocks 0, 0, 1, 1, 2, … have none, so the third block reads such a value.
  const ModelGraph whole = test::without_gradients(test::chain(6, 2), 5);
  const auto may_begin = part_beginnings(whole);
  EXPECT_EQ(may_begin, (std::vector<bool>{true, false, false, true, true, true, true}));
  const int most = 5;
  for (int count = 1; count <= most; ++count) {
    for (const auto& part : balanced_parts(whole, count)) {
      const int block = whole.nodes[static_cast<std::size_t>(part.first)].block;
      EXPECT_TRUE(may_begin[static_cast<std::size_t>(block)]) << count << " parts";
    }
  }
  EXPECT_THROW(balanced_parts(whole, most + 1), ConfigError);
}

// A parameter of a stage gets a gradient there.
TEST(StageCut, NoPartUsesAParameterOnlyWhereItHasNoGradient) {
  ModelGraph whole = test::without_gradients(test::chain(6, 2), 1);
  ASSERT_FALSE(whole.nodes[2].parameters.empty());
  whole.nodes[0].parameters = whole.nodes[6].parameters;
  const auto beginnings = part_beginnings(whole);
  const int gradient = whole.nodes[6].block;
  for (int block = 1; block <= gradient; ++block)
    EXPECT_FALSE(beginnings[static_cast<std::size_t>(block)]) << block;
  EXPECT_TRUE(beginnings[static_cast<std::size_t>(gradient) + 1]);
}

}  // namespace
}  // namespace garonne::plan
