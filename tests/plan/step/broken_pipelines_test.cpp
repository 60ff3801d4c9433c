// Programs of pipelines that do not fit together: refused by replay with the instruction.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/wait_for.hpp"
#include "plan/step/pipelines.hpp"

namespace garonne::plan {
namespace {

using test::pipeline_schedules;
using test::programs_of;
using test::splitting_chain;
using test::Stages;
using test::stages_of;
using test::wait_for;

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

// The same list for every schedule.
TEST(PipelinePrograms, BrokenSetsOfEveryScheduleAreRefused) {
  const ModelGraph whole = splitting_chain(12);
  for (const auto& name : pipeline_schedules) {
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
  const ModelGraph whole = splitting_chain(12);
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
  const ModelGraph whole = splitting_chain(12);
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
  Stages made = stages_of("1f1b", 2, 4, splitting_chain(12), "keep-all");
  ASSERT_EQ(made.programs.size(), 2U);
  std::vector<Instruction*> receives;
  for (auto& instruction : made.programs[1].instructions) {
    if (instruction.operation == Operation::Receive) receives.push_back(&instruction);
  }
  ASSERT_GE(receives.size(), 2U);
  std::swap(receives[0]->channel->tag, receives[1]->channel->tag);
  // Each gets the other's message.
  EXPECT_THROW(replay_together(made.programs), ReplayError);
  std::swap(receives[0]->micro_batch, receives[1]->micro_batch);
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

}  // namespace
}  // namespace garonne::plan
