// The happens-before check, on lanes by hand and on changed Programs.
#include "plan/program/order_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/program/replay.hpp"
#include "plan/program/wait_for.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

std::string refusal(const Program& program) {
  try {
    check_order(program);
  } catch (const ReplayError& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const Program& program, const std::string& part) {
  const std::string text = refusal(program);
  EXPECT_NE(text.find(part), std::string::npos) << "said: " << text << "; wanted: " << part;
  EXPECT_FALSE(text.empty());
}

// A list of instructions over numbered buffers.
struct List {
  Program program;

  int add(Lane lane, std::vector<int> reads, std::vector<int> writes, std::vector<int> after = {}) {
    Instruction instruction;
    instruction.lane = lane;
    instruction.reads = std::move(reads);
    instruction.writes = std::move(writes);
    instruction.after = std::move(after);
    for (const auto& ids : {instruction.reads, instruction.writes}) {
      for (const int id : ids) {
        while (id >= static_cast<int>(program.buffers.size()))
          program.buffers.push_back({"b" + std::to_string(program.buffers.size())});
      }
    }
    program.instructions.push_back(std::move(instruction));
    return static_cast<int>(program.instructions.size()) - 1;
  }
  void wait(int completes) { program.instructions.push_back(test::wait_for(completes)); }
  void free(int buffer) { program.instructions.back().frees.push_back(buffer); }
};

constexpr Lane compute = Lane::Compute;

// Out to the host, on to the disk and back, with compute between: 0 is on the device, 1 on the
// host, 2 on the disk.
List there_and_back(bool follows) {
  List list;
  list.add(compute, {}, {0});
  const int out = list.add(Lane::CopyOut, {0}, {1});
  const int write =
      list.add(Lane::DiskWrite, {1}, {2}, follows ? std::vector{out} : std::vector<int>());
  list.add(compute, {0}, {});
  list.wait(out);
  list.free(0);
  list.wait(write);
  list.free(1);
  const int read = list.add(Lane::DiskRead, {2}, {1});
  const int in = list.add(Lane::CopyIn, {1}, {0}, follows ? std::vector{read} : std::vector<int>());
  list.wait(read);
  list.free(2);
  list.wait(in);
  list.free(1);
  list.add(compute, {0}, {});
  return list;
}

TEST(OrderCheck, ChainsOfLanesNeedTheirAfter) {
  EXPECT_EQ(refusal(there_and_back(true).program), "");
  expect_refused(there_and_back(false).program, "reads b1 while instruction 1");
}

TEST(OrderCheck, ALaneIsInOrderAndMessagesAreNot) {
  for (const Lane lane : {Lane::CopyOut, Lane::HostCompute, Lane::Message, Lane::Collective}) {
    List list;
    list.add(compute, {}, {0});
    const int first = list.add(lane, {0}, {1});
    const int second = list.add(lane, {0}, {2});
    // The second has ended, so in a lane that keeps its order the first has.
    list.wait(second);
    list.add(compute, {1}, {});
    list.wait(first);
    const bool keeps_order = lane == Lane::CopyOut || lane == Lane::HostCompute;
    EXPECT_EQ(refusal(list.program).empty(), keeps_order) << to_string(lane);
  }
}

TEST(OrderCheck, ReadsMayBeSharedAndNothingElse) {
  const auto beside = [](std::vector<int> reads, std::vector<int> writes, bool frees) {
    List list;
    list.add(compute, {}, {0});
    const int copy = list.add(Lane::CopyOut, {0}, {1});
    list.add(compute, std::move(reads), std::move(writes));
    if (frees) list.free(0);
    list.wait(copy);
    return refusal(list.program);
  };
  EXPECT_EQ(beside({0}, {}, false), "");
  EXPECT_NE(beside({0}, {0}, false).find("writes b0 while instruction 1"), std::string::npos);
  EXPECT_NE(beside({1}, {}, false).find("reads b1"), std::string::npos);
  EXPECT_NE(beside({}, {}, true).find("frees b0"), std::string::npos);
}

TEST(OrderCheck, AnInstructionCannotFreeWhatItStillUses) {
  List list;
  list.add(compute, {}, {0});
  const int copy = list.add(Lane::CopyOut, {0}, {1});
  list.free(0);
  list.wait(copy);
  expect_refused(list.program, "frees b0 while instruction 1");
}

TEST(OrderCheck, WaitsAreForWhatIsUnderWay) {
  List none;
  none.add(compute, {}, {0});
  none.wait(0);
  expect_refused(none.program, "waits for nothing");
  List twice;
  const int copy = twice.add(Lane::CopyOut, {}, {0});
  twice.wait(copy);
  twice.wait(copy);
  expect_refused(twice.program, "waits for nothing");
  List later;
  later.wait(1);
  later.add(Lane::CopyOut, {}, {0});
  expect_refused(later.program, "does not come before");
  List never;
  never.add(Lane::CopyOut, {}, {0});
  expect_refused(never.program, "never waited for");
}

// Every Program there is without one of its waits, and with one free before the wait.
TEST(OrderCheck, EveryWaitOfAProgramMatters) {
  int deleted = 0;
  int early = 0;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    for (int zero = 0; zero <= 3; ++zero) {
      const ModelGraph graph = random_graph(seed);
      StepShape step = step_shape(2, 2, 1000);
      step.zero = zero;
      const Program program =
          make_training_program(graph, step, same_for_all(schedule_of(graph, "full"), 2));
      ASSERT_EQ(refusal(program), "");
      for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& wait = program.instructions[i];
        if (wait.operation != Operation::Wait) continue;
        Program without = program;
        without.instructions[i].operation = Operation::Report;
        without.instructions[i].completes = -1;
        EXPECT_NE(refusal(without), "") << "wait " << i;
        ++deleted;
        const auto issued = static_cast<std::size_t>(wait.completes);
        for (const int freed : wait.frees) {
          const auto& used = program.instructions[issued];
          const bool uses = std::count(used.reads.begin(), used.reads.end(), freed) +
                                std::count(used.writes.begin(), used.writes.end(), freed) >
                            0;
          if (!uses) continue;
          Program freed_early = program;
          std::erase(freed_early.instructions[i].frees, freed);
          freed_early.instructions[i - 1].frees.push_back(freed);
          EXPECT_NE(refusal(freed_early), "") << "free at " << i;
          ++early;
        }
      }
    }
  }
  EXPECT_GT(deleted, 100);
  EXPECT_GT(early, 100);
}

bool has(const std::vector<int>& buffers, int buffer) {
  return std::count(buffers.begin(), buffers.end(), buffer) > 0;
}

// Whether what runs from the wait `from` until before the wait `to` may not meet `pending`.
bool keeps_from(const Program& program, const Instruction& pending, std::size_t from,
                std::size_t to) {
  const auto any = [](const std::vector<int>& ids, const std::vector<int>& in) {
    return std::any_of(ids.begin(), ids.end(), [&](int id) { return has(in, id); });
  };
  for (std::size_t i = from; i < to; ++i) {
    const Instruction& next = program.instructions[i];
    if (any(next.reads, pending.writes) || any(next.writes, pending.writes) ||
        any(next.writes, pending.reads) || any(next.frees, pending.reads) ||
        any(next.frees, pending.writes))
      return true;
  }
  return false;
}

// Every Program there is with two waits that follow each other each for what the other is for:
// refused but where it comes to the same.
TEST(OrderCheck, EveryWaitIsForItsInstruction) {
  int wrong = 0;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    for (int zero = 0; zero <= 3; ++zero) {
      const ModelGraph graph = random_graph(seed);
      StepShape step = step_shape(2, 2, 1000);
      step.zero = zero;
      const Program program =
          make_training_program(graph, step, same_for_all(schedule_of(graph, "full"), 2));
      std::vector<std::size_t> waits;
      for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        if (program.instructions[i].operation == Operation::Wait) waits.push_back(i);
      }
      for (std::size_t w = 1; w < waits.size(); ++w) {
        const std::size_t first = waits[w - 1];
        const std::size_t second = waits[w];
        const int pending = program.instructions[first].completes;
        const int other = program.instructions[second].completes;
        Program swapped = program;
        std::swap(swapped.instructions[first].completes, swapped.instructions[second].completes);
        const bool illegal =
            other > static_cast<int>(first) ||
            keeps_from(program, program.instructions[as_index(pending)], first, second);
        EXPECT_EQ(refusal(swapped) != "", illegal)
            << "seed " << seed << ", ZeRO " << zero << ", waits " << first << " and " << second
            << ": " << refusal(swapped);
        if (illegal && other < static_cast<int>(first)) ++wrong;
      }
    }
  }
  EXPECT_GT(wrong, 100) << "both are under way";
}

}  // namespace
}  // namespace garonne::plan::test
