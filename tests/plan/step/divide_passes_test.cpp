// Passes that are divided at their collectives: what they were folded together again, the same
// bytes and seconds, and refused where a part is missing or out of place.
#include "plan/step/divide_passes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/program/pass_parts.hpp"
#include "plan/program/program_meaning.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/tensor_cases.hpp"

namespace garonne::plan::test {
namespace {

std::string text(const Program& program) {
  return to_json(program, {}, {}).dump(1);
}

TEST(DividedPasses, FoldIntoTheProgramThatTheyCameFrom) {
  int parts = 0;
  for (const TensorCase& one : tensor_cases(12)) {
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
  for (const TensorCase& one : tensor_cases(8)) {
    SCOPED_TRACE(one.name);
    const Program program = make_training_program(one.graph, one.step, one.schedule);
    expect_proved(one, of_ranks(one, program));
    const Program read = program_from_json(to_json(program, {}, {}), "a file");
    EXPECT_EQ(program_hash(read), program_hash(program));
    expect_proved(one, of_ranks(one, make_forward_program(one.graph, one.step, one.graph.loss)));
  }
}

TEST(DividedPasses, MeetBesideComputeToo) {
  for (const TensorCase& one : tensor_cases(6)) {
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

Instruction& first_instruction(Program& program,
                               const std::function<bool(const Instruction&)>& wanted) {
  return *std::find_if(program.instructions.begin(), program.instructions.end(), wanted);
}

bool meets(const Instruction& instruction) {
  return instruction.arguments.exchanged >= 0 && is_collective(instruction.operation);
}

TEST(DividedPasses, AreRefusedWhereTheyAreNotWhole) {
  for (const bool apart : {false, true}) {
    const TensorCase one = chain_with_a_sum(apart);
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
    refused("another group", [](Program& damaged) {
      first_instruction(damaged, meets).channel->group = GroupAxis::World;
    });
    refused("another collective than the node's", [](Program& damaged) {
      first_instruction(damaged, meets).operation = Operation::ReduceScatter;
    });
    refused("has not begun",
            [](Program& damaged) { first_instruction(damaged, meets).node_index = 0; });
    refused("meets other ranks within a pass", [](Program& damaged) {
      Instruction& pass = first_instruction(
          damaged, [](const Instruction& other) { return is_forward(other.operation); });
      pass.channel = first_instruction(damaged, meets).channel;
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
  const TensorCase one = chain_with_a_sum(true);
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
  TensorCase one = chain_with_a_sum(true);
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
