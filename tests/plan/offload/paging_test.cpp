// Parameters and gradients that are below the device between their uses.
#include "plan/offload/paging.hpp"
#include "plan/offload/data_ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/contains.hpp"
#include "plan/offload/data_ranks.hpp"
#include "plan/offload/gradient_offload.hpp"
#include "plan/offload/state_offload.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/refusal.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::plan::test {
namespace {

enum Kind { weights, gradients, both, all };

std::vector<int> items_of(const Program& program, Kind kind) {
  std::vector<int> items;
  const auto add = [&](const std::vector<int>& some) {
    items.insert(items.end(), some.begin(), some.end());
  };
  if (kind != gradients) add(movable_weights(program, 0));
  if (kind != weights) add(movable_gradients(program, 0));
  if (kind != all) return items;
  for (const StateGroup& group : state_groups(program, 0)) add(group.buffers);
  return items;
}

// Of each place what is there and cannot leave; what is used there, or is being used by another
// lane, cannot.
std::int64_t least_budget(const Program& program, const std::vector<int>& items) {
  std::vector<std::int64_t> bytes = replay(program).during_bytes;
  const auto& list = program.instructions;
  for (const int id : items) {
    const Buffer& buffer = program.buffers[as_index(id)];
    bool live = buffer.live_at_start;
    std::vector<int> users;
    for (int i = 0; i < static_cast<int>(list.size()); ++i) {
      const Instruction& one = list[as_index(i)];
      const bool uses = contains(one.reads, id) || contains(one.writes, id);
      live = live || uses;
      if (one.operation == Operation::Wait) std::erase(users, one.completes);
      const bool waited =
          one.operation == Operation::Wait && (contains(list[as_index(one.completes)].reads, id) ||
                                               contains(list[as_index(one.completes)].writes, id));
      const bool freed = contains(one.frees, id);
      if (live && !uses && !waited && !freed && users.empty()) bytes[as_index(i)] -= buffer.bytes;
      if (uses && one.lane != Lane::Compute) users.push_back(i);
      if (freed) live = false;
    }
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

TEST(Paging, TheStepIsTheSameWithinAnyBudget) {
  int cells = 0;
  int overlapped = 0;
  int moved_gradients = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const int zero = static_cast<int>(seed % 4);
    const TieredCase one = tiered_case(seed, Tier::Disk, zero);
    const std::vector<Program> keeping = ranks_of(one.program, one.graph, one.step);
    const Outcome wanted = outcome_of(keeping, one.graph, LaneTiming::Early);
    ASSERT_EQ(wanted.failed, "");
    const double before = replay_together(keeping)[0].seconds;
    for (const Kind kind : {weights, gradients, both, all}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", ZeRO " + std::to_string(zero) + ", kind " +
                   std::to_string(kind));
      const Program divided = kind == weights ? one.program : with_divided_squares(one.program);
      const std::vector<int> items = items_of(divided, kind);
      const std::int64_t least = least_budget(divided, items);
      EXPECT_FALSE(with_paging(divided, items, Tier::Disk, tier_links, least - 1).has_value());
      const std::int64_t peak = replay(divided).peak_bytes;
      for (const std::int64_t budget : {least, least + (peak - least) / 3, peak}) {
        const auto moved = with_paging(divided, items, Tier::Disk, tier_links, budget);
        ASSERT_TRUE(moved.has_value());
        ++cells;
        const Prediction after = replay(*moved);
        EXPECT_LE(after.peak_bytes, budget);
        EXPECT_EQ(moved->peak_bytes, after.peak_bytes);
        const std::vector<Program> programs = ranks_of(*moved, one.graph, one.step);
        for (const Program& program : programs) {
          EXPECT_NO_THROW(prove(program, one.graph));
          EXPECT_NO_THROW(prove(program, implied_model(program)));
          GridShape grid;
          grid.data = static_cast<int>(one.step.data_group.size());
          EXPECT_NO_THROW(check_rank_sums(program, grid));
        }
        for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random})
          EXPECT_EQ(outcome_of(programs, one.graph, timing, seed), wanted);
        double copies = 0;
        for (const Instruction& instruction : moved->instructions) {
          if (!is_copy(instruction.operation)) continue;
          copies += instruction.seconds;
          moved_gradients +=
              moved->buffers[as_index(instruction.reads[0])].kind == BufferKind::Gradient;
        }
        const double seconds = replay_together(programs)[0].seconds;
        overlapped += seconds < before + copies * 0.999;
      }
    }
  }
  std::printf("%d Programs, %d faster than with one copy after the other, %d copies of gradients\n",
              cells, overlapped, moved_gradients);
  EXPECT_GT(overlapped, cells / 2);
  EXPECT_GT(moved_gradients, 100);
}

// What nobody wants to be away is read once and written once.
TEST(Paging, WhereThereIsRoomNothingLeavesTwice) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const TieredCase one = tiered_case(seed, Tier::Disk);
    const std::vector<int> items = items_of(one.program, both);
    const std::int64_t peak = replay(one.program).peak_bytes;
    const auto moved = with_paging(one.program, items, Tier::Disk, tier_links, peak);
    ASSERT_TRUE(moved.has_value());
    std::map<int, std::pair<int, int>> copies;  // by buffer: in, out
    for (const Instruction& instruction : moved->instructions) {
      if (instruction.operation == Operation::DiskRead) ++copies[instruction.writes[0]].first;
      if (instruction.operation == Operation::DiskWrite) ++copies[instruction.reads[0]].second;
    }
    for (const int id : items) {
      const bool lasts = one.program.buffers[as_index(id)].live_at_start;
      EXPECT_EQ(copies[id], std::pair(lasts ? 1 : 0, lasts ? 1 : 0))
          << one.program.buffers[as_index(id)].name;
    }
  }
}

// Between updates a parameter goes for nothing: every one of its reads finds what the update wrote.
TEST(Paging, ParametersAreWrittenOnceAStep) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    const TieredCase one = tiered_case(seed, Tier::Disk, static_cast<int>(seed % 4));
    const std::vector<int> items = items_of(one.program, weights);
    const auto moved =
        with_paging(one.program, items, Tier::Disk, tier_links, least_budget(one.program, items));
    ASSERT_TRUE(moved.has_value());
    std::map<int, int> writes;
    for (const Instruction& instruction : moved->instructions) {
      if (instruction.operation == Operation::DiskWrite) ++writes[instruction.reads[0]];
    }
    for (const int id : items) EXPECT_EQ(writes[id], 1) << one.program.buffers[as_index(id)].name;
  }
}

TEST(DividedSquares, HaveTheSumsOfTheWhole) {
  int divided = 0;
  for (unsigned seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(seed);
    const TieredCase one = tiered_case(seed, Tier::Disk, static_cast<int>(seed / 4));
    const Program parts = with_divided_squares(one.program);
    divided += parts.instructions.size() > one.program.instructions.size();
    const double seconds = replay(one.program).seconds;
    EXPECT_NEAR(replay(parts).seconds, seconds, 1e-9 * seconds);
    const auto programs = ranks_of(parts, one.graph, one.step);
    for (const Program& program : programs) EXPECT_NO_THROW(prove(program, one.graph));
    EXPECT_EQ(outcome_of(programs, one.graph, LaneTiming::Late),
              outcome_of(ranks_of(one.program, one.graph, one.step), one.graph, LaneTiming::Late));
  }
  EXPECT_GT(divided, 8);
}

// A validation reads what it needs of the parameters, and leaves them as they are.
TEST(Paging, OtherProgramsOfTheRankFollow) {
  for (const int zero : {0, 1, 3}) {
    SCOPED_TRACE(zero);
    const TieredCase one = tiered_case(3, Tier::Disk, zero);
    const std::vector<int> items = items_of(one.program, all);
    const auto moved =
        with_paging(one.program, items, Tier::Disk, tier_links, replay(one.program).peak_bytes);
    ASSERT_TRUE(moved.has_value());
    const Program forward = make_forward_program(one.graph, one.step, one.graph.loss);
    const std::map<Tier, TierLinks> all_links = {{Tier::Disk, tier_links}};
    std::vector<int> lasting_items = movable_weights(forward, 0);
    for (std::size_t id = 0; id < forward.buffers.size(); ++id) {
      const Buffer& buffer = forward.buffers[id];
      if (buffer.live_at_start &&
          (buffer.kind == BufferKind::OptimizerState || buffer.kind == BufferKind::MasterParameter))
        lasting_items.push_back(static_cast<int>(id));
    }
    const std::int64_t least = least_budget(forward, lasting_items);
    EXPECT_FALSE(with_lasting_as(forward, *moved, all_links, least - 1).has_value());
    const auto placed = with_lasting_as(forward, *moved, all_links, least);
    ASSERT_TRUE(placed.has_value());
    EXPECT_LE(placed->peak_bytes, least);
    const auto lasting = [](const Program& program) {
      std::map<std::string, std::pair<Tier, std::int64_t>> found;
      for (const Buffer& buffer : program.buffers) {
        if (buffer.live_at_start) found[buffer.name] = {buffer.tier, buffer.bytes};
      }
      return found;
    };
    EXPECT_EQ(lasting(*placed), lasting(*moved));
    for (const Instruction& instruction : placed->instructions)
      EXPECT_NE(instruction.operation, Operation::DiskWrite);
    const auto programs = ranks_of(*placed, one.graph, one.step);
    for (const Program& program : programs) EXPECT_NO_THROW(prove(program, one.graph));
    EXPECT_EQ(outcome_of(programs, one.graph, LaneTiming::Late),
              outcome_of(ranks_of(forward, one.graph, one.step), one.graph, LaneTiming::Late));
  }
}

class PlantedWeights : public testing::Test {
 protected:
  PlantedWeights() { make(3, 0); }
  void make(unsigned seed, int zero) {
    one_ = tiered_case(seed, Tier::Disk, zero);
    one_.program = with_divided_squares(std::move(one_.program));
    const std::vector<int> items = items_of(one_.program, both);
    Program moved =
        with_paging(one_.program, items, Tier::Disk, tier_links, least_budget(one_.program, items))
            .value();
    moved_ = ranks_of(moved, one_.graph, one_.step).front();
    EXPECT_EQ(said(), "");
  }
  std::string said() const {
    try {
      replay(moved_);
      prove(moved_, one_.graph);
    } catch (const ReplayError& error) {
      return error.what();
    }
    return "";
  }
  int place_of(Operation operation, BufferKind kind, int k = 0) const {
    for (std::size_t i = 0; i < moved_.instructions.size(); ++i) {
      const Instruction& one = moved_.instructions[i];
      if (one.operation == operation && moved_.buffers[as_index(one.reads[0])].kind == kind &&
          k-- == 0)
        return static_cast<int>(i);
    }
    throw std::out_of_range("so many copies there are not");
  }

  TieredCase one_;
  Program moved_;
};

TEST_F(PlantedWeights, AnotherParameterIsRefused) {
  Instruction& first =
      moved_.instructions[as_index(place_of(Operation::DiskRead, BufferKind::Parameter))];
  Instruction* other = nullptr;
  for (int k = 1; other == nullptr; ++k) {
    Instruction& next =
        moved_.instructions[as_index(place_of(Operation::DiskRead, BufferKind::Parameter, k))];
    const auto size = [&](const Instruction& one) {
      return moved_.buffers[as_index(one.reads[0])].elements;
    };
    if (next.reads[0] != first.reads[0] && size(next) == size(first)) other = &next;
  }
  first.reads = first.arguments.inputs = other->reads;
  EXPECT_NE(said(), "");
}

// The write of an update is skipped: the step after would begin with the old one.
TEST_F(PlantedWeights, AStaleParameterIsRefused) {
  for (const int zero : {0, 1, 3}) {
    SCOPED_TRACE(zero);
    make(3, zero);
    Instruction& write =
        moved_.instructions[as_index(place_of(Operation::DiskWrite, BufferKind::Parameter))];
    // Over a place that nobody reads again, in place of the one that lasts.
    moved_.buffers.push_back(moved_.buffers[as_index(write.writes[0])]);
    Buffer& beside = moved_.buffers.back();
    beside.live_at_start = beside.live_at_end = false;
    const int id = static_cast<int>(moved_.buffers.size()) - 1;
    const int number = static_cast<int>(&write - moved_.instructions.data());
    write.reads.resize(1);
    write.writes = {id};
    write.arguments.output = id;
    for (Instruction& instruction : moved_.instructions) {
      if (instruction.operation == Operation::Wait && instruction.completes == number)
        instruction.frees.push_back(id);
    }
    EXPECT_NE(said().find("is lost with"), std::string::npos) << said();
  }
}

// One that comes back as it was before its last contribution.
TEST_F(PlantedWeights, AnEarlyGradientIsRefused) {
  make(5, 0);
  int first = -1;
  int second = -1;
  for (int k = 0; second < 0; ++k) {
    const int place = place_of(Operation::DiskWrite, BufferKind::Gradient, k);
    const int lower = moved_.instructions[as_index(place)].writes[0];
    for (int j = place + 1; first < 0 && j < static_cast<int>(moved_.instructions.size()); ++j) {
      const Instruction& later = moved_.instructions[as_index(j)];
      if (later.operation != Operation::DiskWrite || later.writes[0] != lower) continue;
      first = place;
      second = j;
    }
  }
  // The later write takes what it took to another place.
  Instruction& write = moved_.instructions[as_index(second)];
  moved_.buffers.push_back(moved_.buffers[as_index(write.writes[0])]);
  const int id = static_cast<int>(moved_.buffers.size()) - 1;
  write.reads.resize(1);
  write.writes = {id};
  write.arguments.output = id;
  for (Instruction& instruction : moved_.instructions) {
    if (instruction.operation == Operation::Wait && instruction.completes == second)
      instruction.frees.push_back(id);
  }
  EXPECT_NE(said().find("contributions"), std::string::npos) << said();
}

// Of ranks that share a parameter, before the others' parts have come.
TEST_F(PlantedWeights, AnUngatheredParameterIsRefused) {
  make(3, 1);
  const int write = place_of(Operation::DiskWrite, BufferKind::Parameter);
  const int buffer = moved_.instructions[as_index(write)].reads[0];
  bool found = false;
  for (Instruction& instruction : moved_.instructions) {
    if (instruction.operation != Operation::AllGather || instruction.writes[0] != buffer) continue;
    found = true;
    instruction.operation = Operation::AllReduce;
  }
  ASSERT_TRUE(found);
  EXPECT_NE(said(), "");
}

}  // namespace
}  // namespace garonne::plan::test
