// Updates on the host of what it has as pages.
#include "plan/offload/paged_update.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/contains.hpp"
#include "base/index.hpp"
#include "plan/offload/data_ranks.hpp"
#include "plan/offload/gradient_offload.hpp"
#include "plan/offload/host_update.hpp"
#include "plan/offload/paging.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan::test {
namespace {

const TierLinks links = {{1e-6, 1e9}, {2e-6, 2e9}};
constexpr double updates_per_second = 1e9;

enum Kind { weights, gradients, both };

std::vector<int> pages_of(const Program& program, Kind kind) {
  std::vector<int> pages;
  const auto add = [&](const std::vector<int>& some) {
    pages.insert(pages.end(), some.begin(), some.end());
  };
  if (kind != gradients) add(movable_weights(program, 0));
  if (kind != weights) add(movable_gradients(program, 0));
  return pages;
}

bool is_update(const Program& program, const std::vector<StateGroup>& groups, int place) {
  const Operation operation = program.instructions[as_index(place)].operation;
  return (operation == Operation::Update || operation == Operation::SumTensors) &&
         std::any_of(groups.begin(), groups.end(), [&](const StateGroup& group) {
           return group.update == place || group.first == place;
         });
}

// Of each place what is there and cannot leave: states never are, and an update uses no page.
std::int64_t least_budget(const Program& program, const std::vector<int>& pages,
                          const std::vector<StateGroup>& groups) {
  std::vector<std::int64_t> bytes = replay(program).during_bytes;
  const auto& list = program.instructions;
  for (std::int64_t& one : bytes) {
    for (const StateGroup& group : groups) one -= group.bytes;
  }
  for (const int id : pages) {
    const Buffer& buffer = program.buffers[as_index(id)];
    bool live = buffer.live_at_start;
    std::vector<int> users;
    for (int i = 0; i < static_cast<int>(list.size()); ++i) {
      const Instruction& one = list[as_index(i)];
      const bool uses = contains(one.reads, id) || contains(one.writes, id);
      const bool updates = is_update(program, groups, i);
      live = live || uses;
      if (one.operation == Operation::Wait) std::erase(users, one.completes);
      const bool waited =
          one.operation == Operation::Wait && (contains(list[as_index(one.completes)].reads, id) ||
                                               contains(list[as_index(one.completes)].writes, id));
      const bool freed = contains(one.frees, id);
      const bool there = (uses || freed) && !updates;
      if (live && !there && !waited && users.empty()) bytes[as_index(i)] -= buffer.bytes;
      if (uses && one.lane != Lane::Compute) users.push_back(i);
      if (freed) live = false;
    }
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

std::vector<int> with_states(std::vector<int> pages, const std::vector<StateGroup>& groups) {
  for (const StateGroup& group : groups)
    pages.insert(pages.end(), group.buffers.begin(), group.buffers.end());
  return pages;
}

// Where states come up for their updates.
std::int64_t least_of_updates_on_device(const Program& program, const std::vector<int>& pages,
                                        const std::vector<StateGroup>& groups) {
  const std::vector<std::int64_t> idle = idle_bytes(program, with_states(pages, groups));
  std::vector<std::int64_t> during = replay(program).during_bytes;
  for (std::size_t place = 0; place < idle.size(); ++place) during[place] -= idle[place];
  return *std::max_element(during.begin(), during.end());
}

std::int64_t copied_bytes(const Program& program) {
  std::int64_t bytes = 0;
  for (const Instruction& instruction : program.instructions) {
    if (is_copy(instruction.operation))
      bytes += program.buffers[as_index(instruction.arguments.output)].bytes;
  }
  return bytes;
}

TEST(PagedUpdates, TheStepIsTheSameWithinAnyBudget) {
  int cells = 0;
  int in_place = 0;
  int gradients_from_pages = 0;
  int copies_less = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const int zero = static_cast<int>(seed % 4);
    const TieredCase one = tiered_case(seed, Tier::Host, zero);
    const Outcome wanted =
        outcome_of(ranks_of(one.program, one.graph, one.step), one.graph, LaneTiming::Early);
    ASSERT_EQ(wanted.failed, "");
    for (const Kind kind : {weights, gradients, both}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", ZeRO " + std::to_string(zero) + ", kind " +
                   std::to_string(kind));
      const Program divided = kind == weights ? one.program : with_divided_squares(one.program);
      const std::vector<int> pages = pages_of(divided, kind);
      const std::vector<StateGroup> groups = for_host(divided, state_groups(divided, 0));
      ASSERT_FALSE(groups.empty());
      const std::int64_t least = least_budget(divided, pages, groups);
      const auto moved_within = [&](std::int64_t budget) {
        return with_paged_updates(divided, pages, groups, links, updates_per_second, budget);
      };
      EXPECT_FALSE(moved_within(least - 1).has_value());
      const std::int64_t peak = replay(divided).peak_bytes;
      for (const std::int64_t budget : {least, least + (peak - least) / 3, peak}) {
        const auto moved = moved_within(budget);
        ASSERT_TRUE(moved.has_value());
        ++cells;
        EXPECT_LE(replay(*moved).peak_bytes, budget);
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
        std::map<int, int> copies_out;  // by buffer of the device
        for (const Instruction& instruction : moved->instructions) {
          if (!is_copy(instruction.operation)) continue;
          const Buffer& from = moved->buffers[as_index(instruction.arguments.inputs[0])];
          EXPECT_NE(from.kind, BufferKind::OptimizerState);
          EXPECT_NE(from.kind, BufferKind::MasterParameter);
          if (from.tier == Tier::Device) ++copies_out[instruction.arguments.inputs[0]];
        }
        for (const Instruction& instruction : moved->instructions) {
          if (instruction.operation != Operation::UpdateHost) continue;
          for (const StandIn& stand_in : instruction.arguments.stand_ins) {
            if (!contains(pages, stand_in.buffer)) continue;
            const Buffer& there = moved->buffers[as_index(stand_in.on_host)];
            if (there.kind == BufferKind::Gradient) ++gradients_from_pages;
            if (there.kind != BufferKind::Parameter) continue;
            EXPECT_TRUE(there.live_at_start && there.live_at_end) << there.name;
            ++in_place;
            // What no ranks gather afterwards never leaves the device.
            if (zero == 0 || zero == 3) {
              EXPECT_EQ(copies_out[stand_in.buffer], 0) << there.name;
            }
          }
        }
      }
      if (kind == both) {
        const auto moved = moved_within(least);
        const auto on_device = with_paging(divided, with_states(pages, groups), Tier::Host, links,
                                           least_of_updates_on_device(divided, pages, groups));
        ASSERT_TRUE(moved && on_device);
        EXPECT_LE(copied_bytes(*moved), copied_bytes(*on_device));
        copies_less += copied_bytes(*moved) < copied_bytes(*on_device);
      }
    }
  }
  std::printf("%d Programs, %d parameters updated in place, %d gradients from pages\n", cells,
              in_place, gradients_from_pages);
  EXPECT_GT(copies_less, 20);
  EXPECT_GT(in_place, 100);
  EXPECT_GT(gradients_from_pages, 100);
}

// An update on the device has states, gradient and parameter there at once, a pass has less of
// them.
TEST(PagedUpdates, TheLargestUpdateNeedsNoRoom) {
  ModelGraph graph = chain(4, 2);
  graph.parameters.front().elements *= 256;
  const StepShape step = step_shape(1, 1, 0);
  Program program = make_training_program(graph, step, same_for_all(schedule_of(graph, "full"), 1));
  program.tier(Tier::Host).granularity = 4096;
  program = with_divided_squares(std::move(program));
  const std::vector<int> pages = pages_of(program, both);
  const std::vector<StateGroup> groups = state_groups(program, 0);
  const std::int64_t least = least_budget(program, pages, groups);
  const std::int64_t large = graph.parameters.front().elements * 4;
  EXPECT_LT(least, 3 * large);
  EXPECT_GT(least_of_updates_on_device(program, pages, groups), 4 * large);
  const auto moved = with_paged_updates(program, pages, groups, links, updates_per_second, least);
  ASSERT_TRUE(moved.has_value());
  EXPECT_LE(moved->peak_bytes, least);
  EXPECT_NO_THROW(prove(*moved, graph));
}

class PlantedPagedUpdates : public testing::Test {
 protected:
  PlantedPagedUpdates() {
    one_ = tiered_case(3, Tier::Host);
    const Program divided = with_divided_squares(one_.program);
    const std::vector<int> pages = pages_of(divided, both);
    const std::vector<StateGroup> groups = for_host(divided, state_groups(divided, 0));
    moved_ = with_paged_updates(divided, pages, groups, links, updates_per_second,
                                least_budget(divided, pages, groups))
                 .value();
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

  TieredCase one_;
  Program moved_;
};

TEST_F(PlantedPagedUpdates, AreLegalAsTheyAre) {
  EXPECT_EQ(said(), "");
}

// A pass that brings the parameter from where it was updated reads that of the next step.
TEST_F(PlantedPagedUpdates, AnUpdateBeforeTheLastPassIsRefused) {
  int refused = 0;
  for (Instruction& instruction : moved_.instructions) {
    if (instruction.operation != Operation::UpdateHost) continue;
    Instruction without = instruction;
    without.after.clear();
    std::swap(instruction, without);
    refused += !said().empty();
    std::swap(instruction, without);
  }
  EXPECT_GT(refused, 0);
}

// The gradient is freed by its update only.
TEST_F(PlantedPagedUpdates, AGradientThatIsGoneIsRefused) {
  for (std::size_t i = 0; i < moved_.instructions.size(); ++i) {
    if (moved_.instructions[i].operation != Operation::UpdateHost) continue;
    for (const StandIn& one : moved_.instructions[i].arguments.stand_ins) {
      const Buffer& there = moved_.buffers[as_index(one.on_host)];
      if (there.kind != BufferKind::Gradient) continue;
      moved_.instructions[i - 1].frees.push_back(one.on_host);
      EXPECT_NE(said(), "");
      return;
    }
  }
  FAIL() << "no update takes a gradient";
}

}  // namespace
}  // namespace garonne::plan::test
