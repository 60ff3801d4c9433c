// Masters and states that last on the host and are updated there.
#include "plan/offload/host_update.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/refusal.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::plan::test {
namespace {

constexpr double updates_per_second = 1e9;

TEST(HostUpdates, TheStepIsTheSame) {
  int overlapped = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const TieredCase one = tiered_case(seed, Tier::Host);
    std::mt19937 random(seed);
    std::vector<StateGroup> groups = state_groups(one.program, 0);
    groups.resize(1 + random() % groups.size());
    std::int64_t states = 0;
    std::int64_t on_host = 0;
    for (const StateGroup& group : groups) {
      states += group.bytes;
      for (const int id : group.buffers)
        on_host += round_up(one.program.buffers[as_index(id)].bytes, 4096);
    }
    const Prediction before = replay(one.program);
    const Outcome wanted = interpret({{&one.graph, &one.program}}, LaneTiming::Early);
    for (const GradientCopies when : {GradientCopies::WhenComplete, GradientCopies::AtTheEnd}) {
      const Program moved =
          with_updates_on_host(one.program, groups, tier_links, updates_per_second, when);
      const Prediction after = replay(moved);
      EXPECT_EQ(after.static_bytes, before.static_bytes - states);
      EXPECT_EQ(after.peak_bytes, before.peak_bytes - states) << "nothing of them comes";
      EXPECT_EQ(moved.peak_bytes, after.peak_bytes);
      EXPECT_EQ(after.host.static_bytes, on_host);
      EXPECT_GT(after.host.peak_bytes, on_host);
      EXPECT_NO_THROW(prove(moved, one.graph));
      EXPECT_NO_THROW(prove(moved, implied_model(moved)));
      EXPECT_EQ(program_from_json(to_json(moved, {0}, {}), "a copy").instructions.size(),
                moved.instructions.size());
      EXPECT_EQ(program_hash(program_from_json(to_json(moved, {0}, {}), "a copy")),
                program_hash(moved));
      for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random})
        EXPECT_EQ(interpret({{&one.graph, &moved}}, timing, seed), wanted);
      double beside = 0;
      for (const Instruction& instruction : moved.instructions)
        beside += instruction.lane == Lane::Compute ? 0 : instruction.seconds;
      overlapped += moved.seconds < before.seconds + beside * 0.999;
      EXPECT_LE(moved.seconds, before.seconds + beside * (1 + 1e-9));
    }
  }
  EXPECT_GT(overlapped, 30);
}

class PlantedUpdates : public testing::Test {
 protected:
  PlantedUpdates() {
    one_ = tiered_case(3, Tier::Host);  // with masters, in buckets
    moved_ = with_updates_on_host(one_.program, state_groups(one_.program, 0), tier_links,
                                  updates_per_second, GradientCopies::WhenComplete);
  }
  std::vector<Instruction*> updates() {
    std::vector<Instruction*> found;
    for (Instruction& instruction : moved_.instructions) {
      if (instruction.operation == Operation::UpdateHost) found.push_back(&instruction);
    }
    return found;
  }
  std::string refused() const {
    if (std::string said = refusal(moved_); !said.empty()) return said;
    try {
      prove(moved_, one_.graph);
    } catch (const ReplayError& error) {
      return error.what();
    }
    return "";
  }

  TieredCase one_;
  Program moved_;
};

TEST_F(PlantedUpdates, AreLegalAsTheyAre) {
  ASSERT_GT(updates().size(), 0U);
  EXPECT_EQ(refused(), "");
}

TEST_F(PlantedUpdates, OfAnotherStateAreRefused) {
  // Of one parameter, both moments have the same size.
  Instruction& update = *updates()[0];
  std::vector<StandIn*> moments;
  for (StandIn& one : update.arguments.stand_ins) {
    const Buffer& buffer = moved_.buffers[as_index(one.buffer)];
    if (buffer.kind != BufferKind::OptimizerState) continue;
    if (!moments.empty() &&
        moved_.buffers[as_index(moments[0]->buffer)].elements != buffer.elements)
      continue;
    moments.push_back(&one);
  }
  ASSERT_GE(moments.size(), 2U);
  std::swap(moments[0]->on_host, moments[1]->on_host);
  EXPECT_NE(refused().find("cannot stand in for"), std::string::npos) << refused();
}

TEST_F(PlantedUpdates, ThatDoNotWaitForTheirGradientAreRefused) {
  updates()[0]->after.clear();
  EXPECT_NE(refused(), "");
}

TEST_F(PlantedUpdates, OnTheDevicesLaneAreRefused) {
  updates()[0]->lane = Lane::CopyOut;
  EXPECT_NE(refused().find("is on the lane"), std::string::npos) << refused();
}

TEST_F(PlantedUpdates, OfSomethingOfTheDeviceAreRefused) {
  StandIn& one = updates()[0]->arguments.stand_ins[0];
  one.on_host = one.buffer;
  EXPECT_NE(refused(), "");
}

// What the host makes of a parameter has to come back.
TEST_F(PlantedUpdates, ThatNeverComeBackAreRefused) {
  for (Instruction& instruction : moved_.instructions) {
    if (instruction.operation != Operation::CopyIn) continue;
    const int back = static_cast<int>(&instruction - moved_.instructions.data());
    Program without = moved_;
    without.instructions.erase(without.instructions.begin() + back);
    for (Instruction& other : without.instructions) {
      if (other.completes == back) {
        other.operation = Operation::Norm;
        other.completes = -1;
      } else if (other.completes > back) {
        --other.completes;
      }
      for (int& earlier : other.after) earlier -= earlier > back ? 1 : 0;
    }
    const std::string said = refusal(without);
    EXPECT_NE(said.find("is lost with"), std::string::npos) << said;
    return;
  }
  FAIL() << "nothing comes back";
}

// A gradient that leaves before its last contribution.
TEST_F(PlantedUpdates, OfAGradientThatIsNotCompleteAreRefused) {
  moved_ = with_updates_on_host(one_.program, state_groups(one_.program, 0), tier_links,
                                updates_per_second, GradientCopies::AtTheEnd);
  int moved_earlier = 0;
  for (std::size_t i = 1; i < moved_.instructions.size() && moved_earlier == 0; ++i) {
    const Instruction copy = moved_.instructions[i];
    if (copy.operation != Operation::CopyOut) continue;
    const int gradient = copy.arguments.inputs[0];
    if (moved_.buffers[as_index(gradient)].kind != BufferKind::Gradient) continue;
    // To behind the first contribution where there are more.
    std::vector<std::size_t> writers;
    for (std::size_t k = 0; k < i; ++k) {
      const auto& writes = moved_.instructions[k].writes;
      if (std::count(writes.begin(), writes.end(), gradient) > 0) writers.push_back(k);
    }
    if (writers.size() < 2) continue;
    auto& list = moved_.instructions;
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
    const std::size_t to = writers[0] + 1;
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(to), copy);
    const auto moved_to = [&](int number) {
      if (number == static_cast<int>(i)) return static_cast<int>(to);
      return number + (number >= static_cast<int>(to) && number < static_cast<int>(i) ? 1 : 0);
    };
    for (Instruction& other : list) {
      if (other.completes >= 0) other.completes = moved_to(other.completes);
      for (int& earlier : other.after) earlier = moved_to(earlier);
    }
    ++moved_earlier;
  }
  ASSERT_EQ(moved_earlier, 1);
  EXPECT_NE(refused(), "");
}

}  // namespace
}  // namespace garonne::plan::test
