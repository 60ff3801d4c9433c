// Parameters of passes that do not train, below the device where it has no room for all of them.
#include "plan/offload/forward_placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "plan/offload/data_ranks.hpp"
#include "plan/offload/paging.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan::test {
namespace {

constexpr std::int64_t ample = std::numeric_limits<std::int64_t>::max() / 4;
constexpr std::int64_t page = 4096;

LowerTier tier_of(std::int64_t bytes) {
  LowerTier tier;
  tier.budget_bytes = bytes;
  tier.granularity = page;
  return tier;
}

// What leaves first: masters, then parameters, each by bytes.
std::vector<int> in_turn(const Program& pass) {
  std::vector<int> found;
  for (const BufferKind kind : {BufferKind::MasterParameter, BufferKind::Parameter}) {
    std::vector<std::pair<std::int64_t, int>> some;
    for (int id = 0; id < static_cast<int>(pass.buffers.size()); ++id) {
      const Buffer& buffer = pass.buffers[static_cast<std::size_t>(id)];
      if (buffer.kind == kind) some.emplace_back(-buffer.bytes, id);
    }
    std::sort(some.begin(), some.end());
    for (const auto& [bytes, id] : some) found.push_back(id);
  }
  return found;
}

int lasting_on(const Program& program, Tier tier) {
  return static_cast<int>(std::count_if(
      program.buffers.begin(), program.buffers.end(),
      [&](const Buffer& buffer) { return buffer.live_at_start && buffer.tier == tier; }));
}

// One by one, until what is left is little enough; none where all are too few.
int fewest(Program pass, std::int64_t budget_bytes) {
  pass.tier(Tier::Disk).granularity = page;
  const std::vector<int> items = in_turn(pass);
  for (std::size_t count = 1; count <= items.size(); ++count) {
    const std::vector<int> some(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count));
    if (with_paging(pass, some, Tier::Disk, {}, budget_bytes)) return static_cast<int>(count);
  }
  return -1;
}

struct Pass {
  TieredCase of;
  Program program;
};

Pass pass_of(unsigned seed) {
  Pass made{tiered_case(seed, Tier::Disk), {}};
  made.of.step.optimizer_states.clear();
  made.program = make_forward_program(made.of.graph, made.of.step, made.of.graph.loss);
  return made;
}

void expect_same(const Pass& pass, const Program& placed) {
  const auto programs = ranks_of(placed, pass.of.graph, pass.of.step);
  for (const Program& program : programs) EXPECT_NO_THROW(prove(program, pass.of.graph));
  EXPECT_EQ(outcome_of(programs, pass.of.graph, LaneTiming::Late),
            outcome_of(ranks_of(pass.program, pass.of.graph, pass.of.step), pass.of.graph,
                       LaneTiming::Late));
}

TEST(ForwardPlacement, HasTheFewestBelow) {
  int moved = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    const Pass pass = pass_of(seed);
    const std::int64_t whole = replay(pass.program).peak_bytes;
    const std::int64_t held = replay(pass.program).static_bytes;
    for (const std::int64_t budget :
         {whole - 1, whole - held / 3, whole - 2 * held / 3, std::int64_t{1}}) {
      SCOPED_TRACE(std::to_string(seed) + ", " + std::to_string(budget) + " of " +
                   std::to_string(whole));
      const Program placed =
          with_fewest_below(pass.program, {{Tier::Disk, tier_of(ample)}}, budget);
      const int wanted = fewest(pass.program, budget);
      if (wanted < 0) {
        EXPECT_EQ(lasting_on(placed, Tier::Disk), static_cast<int>(in_turn(pass.program).size()));
      } else {
        EXPECT_EQ(lasting_on(placed, Tier::Disk), wanted);
        EXPECT_LE(replay(placed).peak_bytes, budget);
        ++moved;
      }
      expect_same(pass, placed);
    }
  }
  EXPECT_GT(moved, 16);
}

// What the upper one has no room for is on the lower one, whose own paging leaves the device room.
TEST(ForwardPlacement, TakesTheLowerTierWhereTheUpperIsFull) {
  int on_both = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const Pass pass = pass_of(seed);
    const std::int64_t room = (1 + seed % 3) * page;
    const std::map<Tier, LowerTier> tiers = {{Tier::Host, tier_of(room)},
                                             {Tier::Disk, tier_of(ample)}};
    const std::int64_t whole = replay(pass.program).peak_bytes;
    const std::int64_t held = replay(pass.program).static_bytes;
    for (const std::int64_t budget : {whole - held / 3, whole - 2 * held / 3, std::int64_t{1}}) {
      const Program placed = with_fewest_below(pass.program, tiers, budget);
      const Prediction found = replay(placed);
      EXPECT_LE(found.host.peak_bytes, room);
      if (fewest(pass.program, budget) >= 0) {
        EXPECT_LE(found.peak_bytes, budget);
      }
      on_both += lasting_on(placed, Tier::Host) > 0 && lasting_on(placed, Tier::Disk) > 0;
      expect_same(pass, placed);
    }
  }
  EXPECT_GT(on_both, 12);
}

}  // namespace
}  // namespace garonne::plan::test
