// Lanes in both replays: when what runs beside compute starts and ends, against the longest path
// through what each instruction follows. Nothing in them knows a lane by its name but that messages
// have links, so every lane is tried, the ones that no Program uses yet and that of
// exchange_lane.hpp, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/lane.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/spans.hpp"
#include "plan/program/wait_for.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

std::vector<Lane> lanes_beside_compute() {
  std::vector<Lane> beside;
  for (const LaneKind& kind : lanes().subspan(1)) beside.push_back(kind.lane);
  return beside;
}

Instruction work(Lane lane, double seconds, std::vector<int> after = {}) {
  Instruction instruction;
  instruction.operation = Operation::Load;
  instruction.node = std::string(to_string(lane));
  instruction.lane = lane;
  instruction.seconds = seconds;
  instruction.after = std::move(after);
  return instruction;
}

void expect_span(const std::vector<Span>& spans, std::size_t i, double begin, double end) {
  EXPECT_EQ(spans.at(i).begin, begin) << "instruction " << i;
  EXPECT_EQ(spans.at(i).end, end) << "instruction " << i;
}

std::string replay_refusal(const Program& program) {
  try {
    replay(program);
  } catch (const ReplayError& error) {
    return error.what();
  }
  return "";
}

TEST(Lanes, EachIsALineOfItsOwn) {
  for (const Lane lane : lanes_beside_compute()) {
    for (const Lane other : lanes_beside_compute()) {
      Program program;
      program.instructions = {work(Lane::Compute, 1), work(lane, 4), work(Lane::Compute, 3),
                              work(other, 2),         wait_for(1),   wait_for(3)};
      check_order(program);
      // A rank alone has one queue for messages and collectives.
      const auto queue = [](Lane one) { return one == Lane::Message ? Lane::Collective : one; };
      const bool queues = queue(lane) == queue(other);
      const std::vector<Span> alone = spans_of(program);
      expect_span(alone, 0, 0, 1);
      expect_span(alone, 1, 1, 5);
      expect_span(alone, 2, 1, 4);
      expect_span(alone, 3, queues ? 5 : 4, queues ? 7 : 6);
      expect_span(alone, 4, 4, 5);
      expect_span(alone, 5, 5, queues ? 7 : 6);
      EXPECT_EQ(replay(program).seconds, queues ? 7 : 6);
      if (lane == other || !queues) {
        EXPECT_EQ(replay_together({program})[0].seconds, replay(program).seconds);
      }
      const Program again =
          program_from_json(nlohmann::json::parse(to_json(program, {0}, {}).dump()), "p.json");
      EXPECT_EQ(program_hash(again), program_hash(program));
    }
  }
}

TEST(Lanes, StartAfterWhatTheyFollow) {
  Program program;
  program.instructions = {work(Lane::Compute, 1),
                          work(Lane::CopyOut, 4),
                          work(Lane::DiskWrite, 2, {1}),
                          work(Lane::HostCompute, 1),
                          work(Lane::CopyIn, 1, {2, 3}),
                          wait_for(4),
                          wait_for(1),
                          wait_for(2),
                          wait_for(3)};
  const std::vector<Span> alone = spans_of(program);
  expect_span(alone, 1, 1, 5);
  expect_span(alone, 2, 5, 7);
  expect_span(alone, 3, 1, 2);
  expect_span(alone, 4, 7, 8);
  EXPECT_EQ(replay(program).seconds, 8);
  EXPECT_EQ(replay_together({program})[0].seconds, replay(program).seconds);
}

// From 1 s on out, from 4 s on in and on the host; or the device stands still from 1 to 5 s and
// from 8 to 10 s, and the host has five seconds to go then.
TEST(Lanes, ComputeMayStandStillForCopies) {
  Program program;
  program.instructions = {work(Lane::Compute, 1),
                          work(Lane::CopyOut, 4),
                          work(Lane::Compute, 3),
                          work(Lane::CopyIn, 2),
                          work(Lane::HostCompute, 5),
                          work(Lane::Compute, 1),
                          wait_for(1),
                          wait_for(3),
                          wait_for(4)};
  EXPECT_EQ(replay_pipeline({program})[0].seconds, 9);
  EXPECT_EQ(replay_pipeline({program}, {.reductions = false, .collectives = false})[0].seconds, 9);
  EXPECT_EQ(replay_pipeline({program}, {.copies = false})[0].seconds, 15);
}

// The longest path: an instruction ends its seconds after the last of those before it has ended,
// and after the host has issued all up to it. Compute stands still for what is on lanes of
// `standing`.
std::vector<Span> longest_paths(const Program& program, const std::vector<Lane>& standing = {}) {
  std::vector<Span> spans;
  double issued = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    std::vector<int> before = instruction.after;
    for (const Lane lane : {Lane::Compute, instruction.lane}) {
      for (int earlier = static_cast<int>(i) - 1; earlier >= 0; --earlier) {
        if (program.instructions[as_index(earlier)].lane != lane) continue;
        before.push_back(earlier);
        break;
      }
    }
    for (int earlier = 0; earlier < static_cast<int>(i); ++earlier) {
      const Lane lane = program.instructions[as_index(earlier)].lane;
      if (std::find(standing.begin(), standing.end(), lane) != standing.end())
        before.push_back(earlier);
    }
    issued += instruction.issue_seconds;
    double begin = issued;
    for (const int earlier : before) begin = std::max(begin, spans[as_index(earlier)].end);
    double end = begin + instruction.seconds;
    if (instruction.completes >= 0) end = std::max(end, spans[as_index(instruction.completes)].end);
    // A wait is on compute from where that was.
    spans.push_back({begin, end});
  }
  return spans;
}

TEST(Lanes, TakeTheLongestPath) {
  int waited = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int most) { return std::uniform_int_distribution(0, most - 1)(random); };
    Program program;
    std::vector<int> open;
    for (int i = 0; i < 30; ++i) {
      if (!open.empty() && below(3) == 0) {
        const auto which = static_cast<std::size_t>(below(static_cast<int>(open.size())));
        program.instructions.push_back(wait_for(open[which]));
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
        continue;
      }
      // Not the messages, which queue with collectives where a rank is alone.
      const std::vector<Lane> beside = lanes_beside_compute();
      const Lane lane = beside[as_index(1 + below(static_cast<int>(beside.size()) - 1))];
      Instruction one = work(below(3) == 0 ? Lane::Compute : lane, below(9));
      // Every other Program is of a device that a host gives its work.
      if (seed % 2 == 1) one.issue_seconds = below(4);
      if (one.lane != Lane::Compute) {
        while (i > 0 && below(2) == 0) one.after.push_back(below(i));
        open.push_back(i);
      }
      program.instructions.push_back(one);
    }
    for (const int one : open) program.instructions.push_back(wait_for(one));
    const std::vector<Span> wanted = longest_paths(program);
    const std::vector<Span> spans = spans_of(program);
    ASSERT_EQ(spans.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(spans[i].begin, wanted[i].begin) << "seed " << seed << ", " << i;
      ASSERT_EQ(spans[i].end, wanted[i].end) << "seed " << seed << ", " << i;
      waited += program.instructions[i].completes >= 0 && wanted[i].end > wanted[i].begin;
    }
    EXPECT_EQ(replay(program).seconds, wanted.back().end);
    EXPECT_EQ(replay_together({program})[0].seconds, wanted.back().end);
    const std::vector<Lane> copies = {Lane::CopyOut, Lane::CopyIn, Lane::DiskWrite, Lane::DiskRead};
    EXPECT_EQ(replay_pipeline({program}, {.copies = false})[0].seconds,
              longest_paths(program, copies).back().end);
  }
  EXPECT_GT(waited, 500);
}

Instruction launch(double seconds, double issue_seconds) {
  Instruction instruction = work(Lane::Compute, seconds);
  instruction.issue_seconds = issue_seconds;
  return instruction;
}

TEST(Lanes, TheHostBindsWhereKernelsAreShort) {
  Program program;
  // One that is long enough for three to be issued beside it, and three that are shorter than it
  // takes to issue them.
  program.instructions = {launch(16, 5), launch(1, 5), launch(1, 5), launch(1, 5), launch(1, 5)};
  const std::vector<Span> spans = spans_of(program);
  expect_span(spans, 0, 5, 21);
  expect_span(spans, 1, 21, 22);
  expect_span(spans, 2, 22, 23);
  expect_span(spans, 3, 23, 24);
  expect_span(spans, 4, 25, 26);
  const Prediction prediction = replay(program);
  EXPECT_EQ(prediction.seconds, 26);
  EXPECT_EQ(prediction.issue_seconds, 25);
  EXPECT_EQ(prediction.launch_seconds, 5 + 1);
  const Prediction together = replay_together({program})[0];
  EXPECT_EQ(together.seconds, 26);
  EXPECT_EQ(together.issue_seconds, 25);
  EXPECT_EQ(together.launch_seconds, 6);
}

Instruction meeting(double seconds, double issue_seconds) {
  Instruction instruction = launch(seconds, issue_seconds);
  instruction.channel = Channel{"all-reduce", GroupAxis::Tensor, {0, 1}, -1, 0, 64};
  return instruction;
}

// Who comes to a collective late because of its host holds up the other, once: the other comes to
// it again and again until all are there.
TEST(Lanes, AHostThatIsLateHoldsUpTheOthers) {
  Program quick;
  quick.instructions = {launch(1, 1), meeting(2, 1), launch(1, 1)};
  Program slow = quick;
  slow.rank = 1;
  slow.instructions[0].issue_seconds = 7;
  const auto together = replay_together({quick, slow});
  // The slow one issues the collective at 8, when its first kernel ends.
  EXPECT_EQ(together[0].seconds, 11);
  EXPECT_EQ(together[1].seconds, 11);
  EXPECT_EQ(together[0].launch_seconds, 1);
  EXPECT_EQ(together[1].launch_seconds, 7);
  EXPECT_EQ(together[0].waited.others, 6);
}

TEST(Lanes, IssueSecondsAreInTheFileWhereThereAreSome) {
  Program program;
  program.instructions = {launch(1, 0), launch(1, 2.5e-6)};
  const nlohmann::json json = nlohmann::json::parse(to_json(program, {0}, {}).dump());
  EXPECT_FALSE(json["instructions"][0].contains("issue_seconds"));
  const Program again = program_from_json(json, "p.json");
  EXPECT_EQ(again.instructions[0].issue_seconds, 0);
  EXPECT_EQ(again.instructions[1].issue_seconds, 2.5e-6);
  nlohmann::json negative = json;
  negative["instructions"][1]["issue_seconds"] = -1;
  EXPECT_THROW(program_from_json(negative, "p.json"), ConfigError);
}

Instruction message(Operation operation, int from, int to, int tag, double seconds) {
  Instruction instruction = work(Lane::Message, seconds);
  instruction.operation = operation;
  const int mine = operation == Operation::Send ? from : to;
  instruction.channel =
      Channel{"message", GroupAxis::Pipeline, {0, 1}, mine == from ? to : from, tag, 64};
  return instruction;
}

// What follows a message that is not there yet does not hold up what the other rank needs first.
TEST(Lanes, ACopyMayFollowWhatHasNotArrived) {
  Program first;
  first.instructions = {message(Operation::Receive, 1, 0, 1, 3),
                        work(Lane::CopyOut, 4, {0}),
                        message(Operation::Send, 0, 1, 0, 2),
                        wait_for(2),
                        wait_for(0),
                        wait_for(1)};
  Program second;
  second.rank = 1;
  second.instructions = {message(Operation::Receive, 0, 1, 0, 2), wait_for(0),
                         message(Operation::Send, 1, 0, 1, 3), wait_for(2)};
  const auto together = replay_together({first, second});
  EXPECT_EQ(together[0].seconds, 9);
  EXPECT_EQ(together[1].seconds, 5);
}

TEST(Lanes, FollowOnlyWhatComesBefore) {
  for (const int named : {-1, 1, 2, 7}) {
    Program program;
    program.instructions = {work(Lane::CopyOut, 1), work(Lane::CopyIn, 1, {named}), wait_for(0),
                            wait_for(1)};
    EXPECT_NE(replay_refusal(program).find(
                  "instruction 1, load copy-in: follows what does not come before"),
              std::string::npos)
        << replay_refusal(program);
  }
  Program program;
  program.instructions = {work(Lane::CopyOut, 1), work(Lane::Compute, 1, {0}), wait_for(0)};
  EXPECT_NE(replay_refusal(program).find("where only a wait waits"), std::string::npos);
}

// What instructions beside Compute do with three buffers that the first one makes or has.
Instruction use(Lane lane, std::vector<int> reads, std::vector<int> writes,
                std::vector<int> after = {}) {
  Instruction instruction = work(lane, 1, std::move(after));
  instruction.reads = std::move(reads);
  instruction.writes = std::move(writes);
  return instruction;
}

// Buffers 0 to 2 come and go; what is waited for last frees them.
Program with_waits(std::vector<Instruction> instructions, const std::vector<int>& waits) {
  Program program;
  for (const char* name : {"zero", "one", "two"}) program.buffers.push_back({name});
  program.instructions = std::move(instructions);
  for (const int waited : waits) program.instructions.push_back(wait_for(waited));
  program.instructions.back().frees = {0, 1, 2};
  return program;
}

std::string order_refusal(const Program& program) {
  try {
    check_order(program);
  } catch (const ReplayError& error) {
    return error.what();
  }
  return "";
}

// Compute waits for what uses a buffer; beside it, what follows it may use the buffer, too.
TEST(Lanes, WhatFollowsMayUseWhatIsUnderWay) {
  const Instruction make = use(Lane::Compute, {}, {0});
  const Instruction out = use(Lane::CopyOut, {0}, {1});
  struct Case {
    std::vector<Instruction> instructions;
    std::vector<int> waits;
    std::string refused;  // part of what replay says; empty where it accepts
  };
  const std::string reads_one = "reads one while an asynchronous instruction writes it";
  const std::string writes_zero = "writes zero while an asynchronous instruction uses it";
  const std::vector<Case> cases = {
      // A chain, whichever end is waited for first.
      {{make, out, use(Lane::DiskWrite, {1}, {2}, {1})}, {1, 2}, ""},
      {{make, out, use(Lane::DiskWrite, {1}, {2}, {1})}, {2, 1}, ""},
      {{make, out, use(Lane::DiskWrite, {1}, {2})}, {1, 2}, reads_one},
      {{make, out, use(Lane::CopyIn, {}, {2}), use(Lane::DiskWrite, {1}, {}, {2})},
       {1, 2, 3},
       reads_one},
      {{make, out, use(Lane::Compute, {1}, {2})}, {1}, reads_one},
      // What is read may be written by what follows, and what is written written again.
      {{make, out, use(Lane::HostCompute, {0}, {0, 2}, {1})}, {2, 1}, ""},
      {{make, out, use(Lane::HostCompute, {0}, {0, 2})}, {2, 1}, writes_zero},
      {{make, out, use(Lane::HostCompute, {1}, {1, 2}, {1})}, {1, 2}, ""},
      {{make, out, use(Lane::HostCompute, {1}, {1, 2})}, {1, 2}, reads_one},
      // All that is under way with it is named, or was waited for.
      {{make, out, use(Lane::Message, {1}, {1, 2}, {1}), use(Lane::HostCompute, {1}, {1}, {1, 2})},
       {3, 2, 1},
       ""},
      {{make, out, use(Lane::Message, {1}, {1, 2}, {1}), use(Lane::HostCompute, {1}, {1}, {1})},
       {3, 2, 1},
       reads_one},
      {{make, out, wait_for(1), use(Lane::DiskWrite, {1}, {2})}, {3}, ""},
  };
  for (const Case& one : cases) {
    const Program program = with_waits(one.instructions, one.waits);
    const std::string refusal = replay_refusal(program);
    EXPECT_NE(refusal.find(one.refused), std::string::npos) << refusal;
    EXPECT_EQ(refusal.empty(), one.refused.empty()) << refusal;
    EXPECT_EQ(order_refusal(program).empty(), one.refused.empty()) << order_refusal(program);
  }
}

TEST(Lanes, WhatFollowsIsWaitedForBeforeItsBuffersGo) {
  Program program = with_waits({use(Lane::Compute, {}, {0}), use(Lane::CopyOut, {0}, {1}),
                                use(Lane::DiskWrite, {1}, {2}, {1})},
                               {1, 2});
  ASSERT_EQ(replay_refusal(program), "");
  std::erase(program.instructions.back().frees, 1);
  program.instructions[3].frees = {1};
  EXPECT_NE(replay_refusal(program).find("frees one while an asynchronous instruction uses it"),
            std::string::npos);
  EXPECT_NE(order_refusal(program), "");
}

// A gather into another buffer starts with a copy, which Compute makes when it is issued.
TEST(Lanes, AGatherFollowsOnlyWhereItIsInPlace) {
  for (const bool in_place : {true, false}) {
    Instruction gather = use(Lane::Collective, {1}, {in_place ? 1 : 2}, {1});
    gather.operation = Operation::AllGather;
    gather.arguments.inputs = {1};
    gather.arguments.output = gather.arguments.part.buffer = in_place ? 1 : 2;
    Program program =
        with_waits({use(Lane::Compute, {}, {0, 2}), use(Lane::CopyOut, {0}, {1}), gather}, {1, 2});
    if (!in_place) program.instructions[0].writes = {0};
    const std::string refusal = replay_refusal(program);
    EXPECT_EQ(refusal.empty(), in_place) << refusal;
    EXPECT_EQ(refusal.find("reads one while an asynchronous") != std::string::npos, !in_place);
  }
}

}  // namespace
}  // namespace garonne::plan::test
