// Updates on the host that go on beside the next step.
#include "plan/offload/rotated_updates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/contains.hpp"
#include "plan/offload/data_ranks.hpp"
#include "plan/offload/host_update.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/program/program_mutants.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/refusal.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/rotated_step.hpp"
#include "plan/program/steps_in_a_row.hpp"

namespace garonne::plan::test {
namespace {

// As slow as passes are.
const TierLinks slow_links = {{1e-3, 1e3}, {1e-3, 2e3}};

Program on_host(const Program& program, unsigned seed) {
  return with_updates_on_host(
      program, for_host(program, state_groups(program, 0)), slow_links, 1e3,
      seed % 2 == 0 ? GradientCopies::WhenComplete : GradientCopies::AtTheEnd);
}

std::int64_t bytes_on_host(const Program& program) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : program.buffers)
    bytes += buffer.tier == Tier::Host ? buffer.bytes : 0;
  return bytes;
}

TEST(RotatedUpdates, StepsInARowAreTheSame) {
  int faster = 0;
  int cases = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const TieredCase one = tiered_case(seed, Tier::Host);
    const Program moved = on_host(one.program, seed);
    const std::optional<Program> rotated = with_rotated_updates(moved);
    ASSERT_TRUE(rotated);
    EXPECT_TRUE(is_rotated(*rotated));
    const Prediction before = replay(moved);
    const Prediction after = replay(*rotated);
    EXPECT_EQ(after.peak_bytes, before.peak_bytes);
    EXPECT_EQ(after.static_bytes, before.static_bytes);
    EXPECT_EQ(after.host.static_bytes, before.host.static_bytes);
    EXPECT_LE(after.host.peak_bytes, bytes_on_host(moved));
    faster += after.seconds < before.seconds * 0.999;
    ++cases;
    EXPECT_NO_THROW(prove(*rotated, one.graph));
    EXPECT_NO_THROW(prove(*rotated));
    const Program copy = program_from_json(to_json(*rotated, {0}, {}), "a copy");
    EXPECT_EQ(program_hash(copy), program_hash(*rotated));
    EXPECT_EQ(replay(copy).seconds, after.seconds);
    const Program whole = as_whole_step(*rotated);
    const Program row = in_a_row(*rotated, 3);
    const Outcome wanted = interpret({{&one.graph, &moved}}, LaneTiming::Early);
    const Program wanted_row = in_a_row(moved, 3);
    const Outcome wanted_of_row = interpret({{&one.graph, &wanted_row}}, LaneTiming::Early);
    ASSERT_EQ(wanted_of_row.failed, "");
    EXPECT_FALSE(wanted_of_row.poisoned);
    EXPECT_NE(wanted_of_row.contents, wanted.contents);
    for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random}) {
      EXPECT_EQ(interpret({{&one.graph, &whole}}, timing, seed), wanted);
      EXPECT_EQ(interpret({{&one.graph, &row}}, timing, seed), wanted_of_row);
    }
  }
  EXPECT_GT(faster, cases / 2);
}

TEST(RotatedUpdates, StepsOfDataRanksAreTheSame) {
  for (const int zero : {1, 2, 3}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE("ZeRO " + std::to_string(zero) + ", seed " + std::to_string(seed));
      const TieredCase one = tiered_case(seed, Tier::Host, zero);
      const Program moved = on_host(one.program, seed);
      const std::optional<Program> rotated = with_rotated_updates(moved);
      ASSERT_TRUE(rotated);
      const std::vector<Program> ranks = ranks_of(*rotated, one.graph, one.step);
      EXPECT_NO_THROW(replay_together(ranks));
      std::vector<Program> rows;
      std::vector<Program> wanted_rows;
      for (const Program& rank : ranks) {
        EXPECT_NO_THROW(prove(rank, one.graph));
        rows.push_back(in_a_row(rank, 3));
      }
      for (const Program& rank : ranks_of(moved, one.graph, one.step))
        wanted_rows.push_back(in_a_row(rank, 3));
      const Outcome wanted = outcome_of(wanted_rows, one.graph, LaneTiming::Early);
      ASSERT_EQ(wanted.failed, "");
      for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random})
        EXPECT_EQ(outcome_of(rows, one.graph, timing, seed), wanted);
    }
  }
}

TEST(RotatedUpdates, AreNoneWhereTheHostUpdatesNothing) {
  EXPECT_FALSE(with_rotated_updates(tiered_case(3, Tier::Host).program));
}

class PlantedRotations : public testing::Test {
 protected:
  PlantedRotations() {
    one_ = tiered_case(3, Tier::Host);
    rotated_ = with_rotated_updates(on_host(one_.program, 2)).value();
  }

  int place_of(const std::function<bool(const Instruction&)>& is) const {
    const auto& all = rotated_.instructions;
    const auto found = std::find_if(all.begin(), all.end(), is);
    EXPECT_NE(found, all.end());
    return static_cast<int>(found - all.begin());
  }

  void move(int from, int to) { mutate(rotated_, {MutantKind::Moved, as_index(from), to}); }

  std::string refused() const {
    if (std::string said = refusal(rotated_); !said.empty()) return said;
    try {
      prove(rotated_, one_.graph);
    } catch (const ReplayError& error) {
      return error.what();
    }
    return "";
  }

  TieredCase one_;
  Program rotated_;
};

TEST_F(PlantedRotations, AreLegalAsTheyAre) {
  EXPECT_EQ(refused(), "");
}

// Of each update whose parameter a pass reads: what brings it, or only the wait for that, behind
// the pass.
TEST_F(PlantedRotations, PassesThatDoNotWaitForTheirParametersAreRefused) {
  const Program right = rotated_;
  int planted = 0;
  for (std::size_t i = 0; i < right.instructions.size(); ++i) {
    const Instruction& brought = right.instructions[i];
    if (brought.operation != Operation::CopyIn || !brought.of_previous_step) continue;
    const int parameter = brought.arguments.output;
    rotated_ = right;
    const int reader = place_of([&](const Instruction& one) {
      return is_forward(one.operation) && contains(one.reads, parameter);
    });
    const int wait =
        place_of([&](const Instruction& one) { return one.completes == static_cast<int>(i); });
    ASSERT_LT(wait, reader);
    move(wait, reader);
    EXPECT_NE(refused().find("while an asynchronous instruction writes it"), std::string::npos)
        << refused();
    // Both, in their order.
    move(static_cast<int>(i), reader - 1);
    EXPECT_NE(refused().find("is of the previous step, and this one has used"), std::string::npos)
        << refused();
    ++planted;
  }
  EXPECT_GT(planted, 1);
}

TEST_F(PlantedRotations, OtherInstructionsOfThePreviousStepAreRefused) {
  const int first = place_of([](const Instruction& one) { return is_forward(one.operation); });
  rotated_.instructions[as_index(first)].of_previous_step = true;
  EXPECT_NE(refused().find("only updates on the host may be left"), std::string::npos) << refused();
}

TEST_F(PlantedRotations, UpdatesBehindTheReportAreRefused) {
  const int last = static_cast<int>(rotated_.instructions.size()) - 1;
  int wait = last;
  while (!rotated_.instructions[as_index(wait)].of_previous_step) --wait;
  const int report =
      place_of([](const Instruction& one) { return one.operation == Operation::Report; });
  ASSERT_LT(wait, report);
  move(wait, report);
  EXPECT_NE(refused().find("has reported its sums"), std::string::npos) << refused();
}

TEST_F(PlantedRotations, UpdatesOfThisStepThatStandBeforeItsGradientsAreRefused) {
  for (Instruction& one : rotated_.instructions) one.of_previous_step = false;
  EXPECT_NE(refused(), "");
}

TEST_F(PlantedRotations, WhatIsNotCarriedIsMissed) {
  const Program right = rotated_;
  int planted = 0;
  for (std::size_t id = 0; id < right.buffers.size(); ++id) {
    rotated_ = right;
    bool& carried = rotated_.buffers[id].carried;
    if (!carried) continue;
    carried = false;
    EXPECT_NE(refused(), "") << right.buffers[id].name;
    ++planted;
  }
  EXPECT_GE(planted, 2);
}

TEST_F(PlantedRotations, NamesOfAnotherStepAreRefused) {
  const int update =
      place_of([](const Instruction& one) { return one.operation == Operation::UpdateHost; });
  const int wait = place_of([&](const Instruction& one) { return one.completes == update; });
  rotated_.instructions[as_index(wait)].of_previous_step = false;
  EXPECT_NE(refused().find("is of another step"), std::string::npos) << refused();
}

// A rank that gathers with the previous step, and one that does with its own, do not meet.
TEST(RotatedRanks, GatherInTheSameStep) {
  const TieredCase one = tiered_case(3, Tier::Host, 1);
  const Program moved = on_host(one.program, 0);
  std::vector<Program> ranks = ranks_of(*with_rotated_updates(moved), one.graph, one.step);
  EXPECT_NO_THROW(replay_together(ranks));
  ranks[1] = ranks_of(moved, one.graph, one.step)[1];
  EXPECT_THROW(replay_together(ranks), ReplayError);
}

}  // namespace
}  // namespace garonne::plan::test
