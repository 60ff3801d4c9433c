// Masters and states that are below the device between their updates.
#include "plan/offload/state_offload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/refusal.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

std::int64_t bytes_of(const std::vector<StateGroup>& groups) {
  std::int64_t bytes = 0;
  for (const StateGroup& group : groups) bytes += group.bytes;
  return bytes;
}

// By going through the list for each buffer.
TEST(StateGroups, AreWhatOneUpdateUsesAndNobodyElse) {
  std::size_t groups_found = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const TieredCase one = tiered_case(seed, Tier::Disk);
    std::map<int, std::set<int>> wanted;
    for (int id = 0; id < static_cast<int>(one.program.buffers.size()); ++id) {
      const Buffer& buffer = one.program.buffers[as_index(id)];
      if (buffer.kind != BufferKind::OptimizerState && buffer.kind != BufferKind::MasterParameter)
        continue;
      std::set<int> users;
      for (int i = 0; i < static_cast<int>(one.program.instructions.size()); ++i) {
        const Instruction& instruction = one.program.instructions[as_index(i)];
        if (std::count(instruction.reads.begin(), instruction.reads.end(), id) > 0) users.insert(i);
      }
      ASSERT_EQ(users.size(), 1U);
      wanted[*users.begin()].insert(id);
    }
    std::map<int, std::set<int>> found;
    std::int64_t bytes = 0;
    int last = -1;
    for (const StateGroup& group : state_groups(one.program, 0)) {
      EXPECT_GT(group.update, last);
      last = group.update;
      found[group.update] = {group.buffers.begin(), group.buffers.end()};
      for (const int id : group.buffers) bytes += one.program.buffers[as_index(id)].bytes;
      EXPECT_EQ(bytes_of({group}), bytes);
      bytes = 0;
      ++groups_found;
    }
    EXPECT_EQ(found, wanted);
    for (const StateGroup& group : state_groups(one.program, 600)) {
      for (const int id : group.buffers) EXPECT_GE(one.program.buffers[as_index(id)].bytes, 600);
    }
  }
  EXPECT_GT(groups_found, 60U);
}

// Each is beside what is there from its update on; all others can wait or have gone.
std::int64_t least_budget(const Program& program, const std::vector<StateGroup>& groups) {
  std::vector<std::int64_t> during = replay(program).during_bytes;
  for (std::int64_t& bytes : during) bytes -= bytes_of(groups);
  std::int64_t least = *std::max_element(during.begin(), during.end());
  for (const StateGroup& group : groups)
    least = std::max(least,
                     group.bytes + *std::max_element(during.begin() + group.update, during.end()));
  return least;
}

TEST(StatesBelow, TheStepIsTheSameWithinAnyBudget) {
  int overlapped = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const TieredCase one = tiered_case(seed, Tier::Disk);
    std::mt19937 random(seed);
    std::vector<StateGroup> groups = state_groups(one.program, 0);
    groups.resize(1 + random() % groups.size());
    const std::int64_t least = least_budget(one.program, groups);
    EXPECT_FALSE(
        with_states_below(one.program, groups, Tier::Disk, tier_links, least - 1).has_value());
    const Prediction before = replay(one.program);
    const Outcome wanted = interpret({{&one.graph, &one.program}}, LaneTiming::Early);
    for (const std::int64_t budget : {least, least + bytes_of(groups) / 3, before.peak_bytes}) {
      const auto moved = with_states_below(one.program, groups, Tier::Disk, tier_links, budget);
      ASSERT_TRUE(moved.has_value());
      const Prediction after = replay(*moved);
      EXPECT_LE(after.peak_bytes, budget);
      EXPECT_EQ(moved->peak_bytes, after.peak_bytes);
      EXPECT_EQ(after.static_bytes, before.static_bytes - bytes_of(groups));
      std::int64_t below = 0;
      for (const StateGroup& group : groups) {
        for (const int id : group.buffers)
          below += round_up(one.program.buffers[as_index(id)].bytes, 4096);
      }
      EXPECT_EQ(after.of(Tier::Disk).peak_bytes, below);
      EXPECT_EQ(after.of(Tier::Disk).static_bytes, below);
      EXPECT_NO_THROW(prove(*moved, one.graph));
      EXPECT_NO_THROW(prove(*moved, implied_model(*moved)));
      for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random})
        EXPECT_EQ(interpret({{&one.graph, &*moved}}, timing, seed), wanted);
      // All at once is never faster than one after the other.
      double copies = 0;
      for (const Instruction& instruction : moved->instructions)
        copies += is_copy(instruction.operation) ? instruction.seconds : 0;
      overlapped += moved->seconds < before.seconds + copies * 0.999;
      EXPECT_LE(moved->seconds, before.seconds + copies * (1 + 1e-9));
    }
  }
  EXPECT_GT(overlapped, 30);
}

class Planted : public testing::Test {
 protected:
  Planted() {
    one_ = tiered_case(3, Tier::Disk);
    moved_ = with_states_below(one_.program, state_groups(one_.program, 0), Tier::Disk, tier_links,
                               replay(one_.program).peak_bytes)
                 .value();
  }
  // The k-th copy of its kind.
  Instruction& copy(Operation operation, int k) {
    for (Instruction& instruction : moved_.instructions) {
      if (instruction.operation == operation && k-- == 0) return instruction;
    }
    throw std::out_of_range("so many copies there are not");
  }

  TieredCase one_;
  Program moved_;
};

TEST_F(Planted, AnotherStateIsRefused) {
  ASSERT_EQ(refusal(moved_), "");
  // Of one parameter, both moments have the same size.
  Instruction& first = copy(Operation::DiskRead, 0);
  Instruction* other = nullptr;
  for (int k = 1; other == nullptr; ++k) {
    Instruction& next = copy(Operation::DiskRead, k);
    const auto like = [&](const Instruction& one) {
      const Buffer& buffer = moved_.buffers[as_index(one.arguments.inputs[0])];
      return std::pair(buffer.kind, buffer.elements);
    };
    if (like(next) == like(first)) other = &next;
  }
  std::swap(first.reads, other->reads);
  std::swap(first.arguments.inputs, other->arguments.inputs);
  const std::string said = refusal(moved_);
  EXPECT_NE(said.find("would get the numbers of"), std::string::npos) << said;
}

TEST_F(Planted, AnUpdateThatStaysAboveIsRefused) {
  // What comes back to the disk is what has come from there.
  Instruction& back = copy(Operation::DiskWrite, 0);
  const int device = back.arguments.inputs[0];
  const int disk = back.arguments.output;
  for (Instruction& instruction : moved_.instructions) {
    if (instruction.operation != Operation::Update) continue;
    for (const int id : instruction.arguments.pieces) {
      Piece& piece = moved_.pieces[as_index(id)];
      for (Range& state : piece.states) {
        if (state.buffer == device) state.buffer = disk;
      }
      if (piece.trained.buffer == device) piece.trained.buffer = disk;
    }
  }
  EXPECT_NE(refusal(moved_), "");
}

TEST_F(Planted, ACopyThatIsMissingIsRefused) {
  const Instruction& back = copy(Operation::DiskWrite, 0);
  const int number = static_cast<int>(&back - moved_.instructions.data());
  // Its wait frees the buffer all the same.
  Program without = moved_;
  without.instructions.erase(without.instructions.begin() + number);
  for (Instruction& instruction : without.instructions) {
    if (instruction.completes == number) {
      instruction.operation = Operation::Norm;
      instruction.completes = -1;
    } else if (instruction.completes > number) {
      --instruction.completes;
    }
  }
  const std::string said = refusal(without);
  EXPECT_NE(said.find("is lost with"), std::string::npos) << said;
}

}  // namespace
}  // namespace garonne::plan::test
