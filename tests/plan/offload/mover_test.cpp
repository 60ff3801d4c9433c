// What is moved in several ways at once.
#include "plan/offload/mover.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "plan/offload/data_ranks.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan::test {
namespace {

// A host with room for a part of the states beside a disk for the rest.
TEST(Mover, StatesThatTheHostHasNoRoomForAreOnTheDisk) {
  int on_both = 0;
  int cells = 0;
  for (unsigned seed = 0; seed < 16; ++seed) {
    const int zero = static_cast<int>(seed % 4);
    TieredCase one = tiered_case(seed, Tier::Host, zero);
    one.program.tier(Tier::Disk).granularity = 4096;
    const Outcome wanted =
        outcome_of(ranks_of(one.program, one.graph, one.step), one.graph, LaneTiming::Early);
    const std::vector<StateGroup> groups = state_groups(one.program, 0);
    std::int64_t states = 0;
    for (const StateGroup& group : groups) states += group.bytes;
    for (const int percent : {0, 30, 60}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(percent) + " %");
      LowerTiers below;
      // Of updates the host has gradients and parameters besides.
      const std::int64_t room = states * percent / 100 + (percent > 0 ? 65536 : 0);
      below.tiers = {{Tier::Host, {{{0, 1e8}, {0, 1e8}}, room, 4096}},
                     {Tier::Disk, {{{0, 1e6}, {0, 1e6}}, 1 << 30, 4096}}};
      below.activations = below.gradients = below.weights = false;
      below.least_bytes = below.least_state_bytes = 0;
      for (const auto& [tier, limits] : below.tiers)
        one.program.tier(tier).budget_bytes = limits.budget_bytes;
      const Prediction before = replay(one.program);
      const Mover mover(one.program, below, before.peak_bytes, nullptr);
      for (const MovedProgram& moved : mover.run()) {
        ++cells;
        const Prediction after = replay(moved.program);
        EXPECT_LE(after.peak_bytes, before.peak_bytes);
        EXPECT_LE(after.of(Tier::Host).peak_bytes, room);
        const std::vector<Program> programs = ranks_of(moved.program, one.graph, one.step);
        for (const Program& program : programs) EXPECT_NO_THROW(prove(program, one.graph));
        for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random})
          EXPECT_EQ(outcome_of(programs, one.graph, timing, seed), wanted);
        const bool both =
            after.of(Tier::Host).peak_bytes > 0 && after.of(Tier::Disk).peak_bytes > 0;
        EXPECT_TRUE(percent > 0 || !both);
        on_both += both;
      }
    }
  }
  std::printf("%d of %d Programs are on both\n", on_both, cells);
  EXPECT_GT(on_both, 10);
}

}  // namespace
}  // namespace garonne::plan::test
