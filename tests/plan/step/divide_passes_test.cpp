// Passes that are divided at their collectives: what they were folded together again, the same
// bytes and seconds, and refused where a part is missing or out of place.
#include "plan/step/divide_passes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/program/content_check.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/pass_parts.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/program_meaning.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/rank_program.hpp"
#include "plan/step/tensor_graphs.hpp"

namespace garonne::plan::test {
namespace {

struct Case {
  std::string name;
  ModelGraph graph;
  StepShape step;
  StepSchedule schedule;
};

std::vector<Case> cases(unsigned seeds) {
  std::vector<Case> all;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    const ModelGraph graph = with_collectives(random_graph(seed), seed);
    for (const auto& [policy, schedule] : policy_schedules(graph)) {
      StepShape step = tensor_step_shape(2, 1 + static_cast<int>(seed % 2), 1000);
      step.zero = static_cast<int>(seed % 4);
      all.push_back(
          {"seed " + std::to_string(seed) + ", " + policy, graph, step, same_for_all(schedule, 2)});
    }
  }
  return all;
}

std::string text(const Program& program) {
  return to_json(program, {}, {}).dump(1);
}

std::vector<Program> of_ranks(const Case& one, const Program& program) {
  std::vector<Program> programs;
  const int data_ranks = static_cast<int>(one.step.data_group.size());
  for (int rank = 0; rank < 2 * data_ranks; ++rank) {
    RankPlace place;
    place.rank = rank;
    place.coordinates = {rank / 2, 0, rank % 2};
    for (int data = 0; data < data_ranks; ++data) place.data_group.push_back(2 * data + rank % 2);
    place.tensor_group = {rank / 2 * 2, rank / 2 * 2 + 1};
    programs.push_back(program_of_rank(program, one.graph, place));
  }
  return programs;
}

Outcome outcome_of(const Case& one, const std::vector<Program>& programs, LaneTiming timing,
                   unsigned seed = 0) {
  std::vector<RankProgram> ranks;
  for (const Program& program : programs) ranks.push_back({&one.graph, &program});
  return interpret(ranks, timing, seed);
}

void expect_proved(const Case& one, const std::vector<Program>& programs) {
  for (const Program& program : programs) {
    EXPECT_NO_THROW(check_order(program));
    EXPECT_NO_THROW(check_against_model(program, one.graph));
    EXPECT_NO_THROW(check_contents(program, one.graph));
    const ModelGraph implied = implied_model(program);
    EXPECT_NO_THROW(check_against_model(program, implied));
    EXPECT_NO_THROW(check_contents(program, implied));
  }
  EXPECT_NO_THROW(replay_together(programs));
}

TEST(DividedPasses, FoldIntoTheProgramThatTheyCameFrom) {
  int parts = 0;
  for (const Case& one : cases(12)) {
    SCOPED_TRACE(one.name);
    Program undivided = make_undivided_program(one.graph, one.step, one.schedule);
    const Program divided = make_training_program(one.graph, one.step, one.schedule);
    const Program folded = fold_passes(divided);
    ASSERT_EQ(text(folded), text(undivided));
    if (one.step.zero == 0) check_meaning(one.graph, folded);
    for (Instruction& instruction : undivided.instructions) {
      const bool pass = is_forward(instruction.operation) || is_backward(instruction.operation);
      if (pass) instruction.channel.reset();
    }
    const Prediction before = replay(undivided);
    const Prediction after = replay(divided);
    EXPECT_EQ(after.peak_bytes, before.peak_bytes);
    EXPECT_EQ(after.peak_bytes, slow_peak(divided));
    EXPECT_DOUBLE_EQ(after.seconds, before.seconds);
    parts += static_cast<int>(divided.instructions.size() - folded.instructions.size());
  }
  EXPECT_GT(parts, 1000);
}

TEST(DividedPasses, AreProvedAndSurviveTheirFile) {
  for (const Case& one : cases(8)) {
    SCOPED_TRACE(one.name);
    const Program program = make_training_program(one.graph, one.step, one.schedule);
    expect_proved(one, of_ranks(one, program));
    const Program read = program_from_json(to_json(program, {}, {}), "a file");
    EXPECT_EQ(program_hash(read), program_hash(program));
    expect_proved(one, of_ranks(one, make_forward_program(one.graph, one.step, one.graph.loss)));
  }
}

TEST(DividedPasses, MeetBesideComputeToo) {
  for (const Case& one : cases(6)) {
    SCOPED_TRACE(one.name);
    const Program blocking = make_training_program(one.graph, one.step, one.schedule);
    const Program beside = with_passes_beside_compute(blocking);
    const std::vector<Program> programs = of_ranks(one, beside);
    expect_proved(one, programs);
    EXPECT_EQ(replay(beside).peak_bytes, replay(blocking).peak_bytes);
    const Outcome wanted = outcome_of(one, of_ranks(one, blocking), LaneTiming::Late);
    ASSERT_EQ(wanted.failed, "");
    EXPECT_FALSE(wanted.poisoned);
    for (const LaneTiming timing : {LaneTiming::Early, LaneTiming::Late, LaneTiming::Random})
      EXPECT_EQ(outcome_of(one, programs, timing, 5), wanted);
  }
}

// A sum over the tensor group behind one node, in place where `apart` is false.
Case chain_with_a_sum(bool apart) {
  Case one;
  one.graph = chain(2, 2);
  NodeSpec& node = one.graph.nodes[1];
  // Its parameter goes, and those behind it move up.
  node.parameters.clear();
  one.graph.parameters.pop_back();
  for (NodeSpec& other : one.graph.nodes) {
    for (int& parameter : other.parameters) parameter -= parameter > 0 ? 1 : 0;
  }
  node.pinned_values.clear();
  node.private_slot_bytes.clear();
  node.forward_collective = {"all-reduce", 4096, apart ? 8192 : 0, 2048};
  node.backward_collective = {"reduce-scatter", 4096, 4096, 2048};
  node.forward.transient_bytes = node.forward_keep.transient_bytes = apart ? 12288 : 2048;
  node.backward.transient_bytes = 4096;
  one.step = tensor_step_shape(1, 1, 1000);
  one.schedule = same_for_all(schedule_of(one.graph, "full"), 1);
  return one;
}

std::string refusal(const Case& one, const Program& program) {
  try {
    replay(program);
    check_order(program);
    check_against_model(program, one.graph);
    check_contents(program, one.graph);
  } catch (const ReplayError& error) {
    return error.what();
  }
  return "";
}

Instruction& first_of(Program& program, const std::function<bool(const Instruction&)>& wanted) {
  return *std::find_if(program.instructions.begin(), program.instructions.end(), wanted);
}

bool meets(const Instruction& instruction) {
  return instruction.arguments.exchanged >= 0 && is_collective(instruction.operation);
}

TEST(DividedPasses, AreRefusedWhereTheyAreNotWhole) {
  for (const bool apart : {false, true}) {
    const Case one = chain_with_a_sum(apart);
    const Program program = make_training_program(one.graph, one.step, one.schedule);
    ASSERT_EQ(refusal(one, program), "");
    const auto refused = [&](const char* reason, const std::function<void(Program&)>& damage) {
      Program damaged = program;
      damage(damaged);
      EXPECT_NE(refusal(one, damaged).find(reason), std::string::npos) << reason << "\n"
                                                                       << refusal(one, damaged);
    };
    refused("finishes too early", [](Program& damaged) {
      const auto found =
          std::find_if(damaged.instructions.begin(), damaged.instructions.end(), meets);
      damaged.instructions.erase(found);
    });
    refused("exchanges what has been exchanged", [](Program& damaged) {
      const auto found =
          std::find_if(damaged.instructions.begin(), damaged.instructions.end(), meets);
      damaged.instructions.insert(found, Instruction(*found));
    });
    refused("another group",
            [](Program& damaged) { first_of(damaged, meets).channel->group = GroupAxis::World; });
    refused("another collective than the node's", [](Program& damaged) {
      first_of(damaged, meets).operation = Operation::ReduceScatter;
    });
    refused("has not begun", [](Program& damaged) { first_of(damaged, meets).node_index = 0; });
    refused("meets other ranks within a pass", [](Program& damaged) {
      Instruction& pass =
          first_of(damaged, [](const Instruction& other) { return is_forward(other.operation); });
      pass.channel = first_of(damaged, meets).channel;
    });
    refused("not divided", [&](Program& damaged) {
      damaged = make_undivided_program(one.graph, one.step, one.schedule);
      for (Instruction& instruction : damaged.instructions) {
        if (is_forward(instruction.operation) || is_backward(instruction.operation))
          instruction.channel.reset();
      }
    });
  }
}

TEST(DividedPasses, WhatIsUnderWayIsNotTaken) {
  const Case one = chain_with_a_sum(true);
  const Program program =
      with_passes_beside_compute(make_training_program(one.graph, one.step, one.schedule));
  ASSERT_EQ(refusal(one, program), "");
  Program damaged = program;
  const auto meeting =
      std::find_if(damaged.instructions.begin(), damaged.instructions.end(), meets);
  const auto wait = std::next(meeting);
  ASSERT_EQ(wait->operation, Operation::Wait);
  std::swap(*wait, *std::next(wait));
  EXPECT_NE(refusal(one, damaged).find("while an asynchronous instruction"), std::string::npos)
      << refusal(one, damaged);
}

TEST(DividedPasses, ANodeDeclaresWhatItsPartsTake) {
  Case one = chain_with_a_sum(true);
  one.graph.nodes[1].forward.transient_bytes -= 4096 + 64;
  one.graph.nodes[1].forward_keep.transient_bytes -= 4096 + 64;
  EXPECT_THROW(make_training_program(one.graph, one.step, one.schedule), InternalError);
}

TEST(DividedPasses, ANodeThatCommunicatesDoesNothingElse) {
  ModelGraph graph = chain(2, 2);
  EXPECT_NO_THROW(check_model_graph(graph));
  graph.nodes[1].forward_collective = {"all-reduce", 4096, 0, 2048};
  EXPECT_THROW(check_model_graph(graph), InternalError);
}

}  // namespace
}  // namespace garonne::plan::test
