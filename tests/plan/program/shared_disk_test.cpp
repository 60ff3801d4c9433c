// Copies of several ranks to one disk in replay of ranks together: makespans by hand, and against a
// simulation in small steps of time that shares nothing with it.
#include "plan/program/shared_disk.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <deque>
#include <random>
#include <vector>

#include "plan/offload/offload.hpp"
#include "plan/program/wait_for.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

// What a rank does, one after the other.
enum class Deed { Compute, Write, WaitWrite, Read, WaitRead };
struct Act {
  Deed deed = Deed::Compute;
  double seconds = 0;  // of copies with the even share
};
using Script = std::vector<Act>;

// Waits are for the first copy of their kind that was not waited for.
Program program_of(const Script& script) {
  Program program;
  program.tier(Tier::Disk).granularity = 4096;
  std::deque<int> writes;
  std::deque<int> reads;
  const auto buffer = [&](Tier tier, BufferKind kind, bool lasts) {
    program.buffers.push_back(
        {"buffer." + std::to_string(program.buffers.size()), kind, 4096, 0, 0, tier, lasts, lasts});
    return static_cast<int>(program.buffers.size()) - 1;
  };
  const auto wait = [&](std::deque<int>& copies) {
    const int copy = copies.front();
    copies.pop_front();
    const Instruction& waited = program.instructions[as_index(copy)];
    const bool write = waited.operation == Operation::DiskWrite;
    program.instructions.push_back(
        wait_for(copy, write ? std::vector<int>{waited.reads[0], waited.writes[0]}
                             : std::vector<int>{waited.writes[0]}));
  };
  for (const Act& act : script) {
    Instruction instruction;
    switch (act.deed) {
      case Deed::Compute:
        instruction.operation = Operation::Load;
        instruction.seconds = act.seconds;
        program.instructions.push_back(instruction);
        break;
      case Deed::Write: {
        instruction.operation = Operation::Load;
        const int value = buffer(Tier::Device, BufferKind::Value, false);
        instruction.writes = {value};
        program.instructions.push_back(instruction);
        writes.push_back(static_cast<int>(program.instructions.size()));
        const int below = buffer(Tier::Disk, BufferKind::Value, false);
        program.instructions.push_back(copy_instruction(program, value, below, {}));
        program.instructions.back().seconds = act.seconds;
        break;
      }
      case Deed::Read: {
        const int below = buffer(Tier::Disk, BufferKind::OptimizerState, true);
        const int value = buffer(Tier::Device, BufferKind::OptimizerState, false);
        reads.push_back(static_cast<int>(program.instructions.size()));
        program.instructions.push_back(copy_instruction(program, below, value, {}));
        program.instructions.back().seconds = act.seconds;
        break;
      }
      case Deed::WaitWrite:
        wait(writes);
        break;
      case Deed::WaitRead:
        wait(reads);
    }
  }
  return program;
}

// All on one node, each by itself.
SharedDisk of_one_node(int ranks) {
  SharedDisk disk;
  disk.ranks_on_node = ranks;
  disk.alike.assign(as_index(ranks), std::vector<int>(as_index(ranks), 1));
  return disk;
}

std::vector<double> seconds_of(const std::vector<Script>& scripts, const SharedDisk& disk) {
  std::vector<Program> programs;
  for (const Script& script : scripts) programs.push_back(program_of(script));
  std::vector<double> seconds;
  for (const Prediction& one : replay_together(programs, disk)) seconds.push_back(one.seconds);
  return seconds;
}

using Seconds = std::vector<double>;

Script writes(double after, double seconds) {
  return {{Deed::Compute, after}, {Deed::Write, seconds}, {Deed::WaitWrite}};
}

Script reads(double after, double seconds) {
  return {{Deed::Compute, after}, {Deed::Read, seconds}, {Deed::WaitRead}};
}

TEST(SharedDisk, AtOneTimeEachHasItsShare) {
  EXPECT_EQ(seconds_of({writes(0, 4), writes(0, 4)}, of_one_node(2)), (Seconds{4, 4}));
}

TEST(SharedDisk, AloneACopyHasAllOfIt) {
  EXPECT_EQ(seconds_of({writes(0, 4), writes(10, 4)}, of_one_node(2)), (Seconds{2, 12}));
  EXPECT_EQ(seconds_of({writes(0, 4), {{Deed::Compute, 1}}}, of_one_node(2)), (Seconds{2, 1}));
}

// From 1 to 3 both move, at half the rate; before and after one does.
TEST(SharedDisk, InPartAtOneTime) {
  EXPECT_EQ(seconds_of({writes(0, 4), writes(1, 4)}, of_one_node(2)), (Seconds{3, 4}));
}

// Until 2 the one writes alone; the shorter ends at 3.
TEST(SharedDisk, TheRestOfALongerOneHasAllAgain) {
  EXPECT_EQ(seconds_of({writes(0, 8), writes(2, 1)}, of_one_node(2)), (Seconds{4.5, 3}));
}

TEST(SharedDisk, ReadsAndWritesShareWhereThatIsOneRate) {
  SharedDisk disk = of_one_node(2);
  EXPECT_EQ(seconds_of({writes(0, 4), reads(0, 4)}, disk), (Seconds{2, 2}));
  // The even share is a quarter then: of two ranks, each way.
  disk.half_duplex = true;
  EXPECT_EQ(seconds_of({writes(0, 4), reads(0, 4)}, disk), (Seconds{2, 2}));
  EXPECT_EQ(seconds_of({writes(0, 4), reads(9, 4)}, disk), (Seconds{1, 10}));
  const Script both = {{Deed::Write, 4}, {Deed::Read, 4}, {Deed::WaitWrite}, {Deed::WaitRead}};
  EXPECT_EQ(seconds_of({both, both}, disk), (Seconds{4, 4}));
}

TEST(SharedDisk, EachNodeHasItsOwn) {
  SharedDisk disk = of_one_node(2);
  disk.alike = {{1, 0}, {0, 1}};
  EXPECT_EQ(seconds_of({writes(0, 4), writes(0, 4)}, disk), (Seconds{2, 2}));
  // Beside each of them another rank does the same.
  disk.alike = {{2, 0}, {0, 2}};
  EXPECT_EQ(seconds_of({writes(0, 4), writes(1, 4)}, disk), (Seconds{4, 5}));
}

TEST(SharedDisk, NobodySharesTheLatency) {
  SharedDisk disk = of_one_node(2);
  disk.latency_seconds = 1;
  EXPECT_EQ(seconds_of({writes(0, 5), writes(20, 5)}, disk), (Seconds{3, 23}));
  EXPECT_EQ(seconds_of({writes(0, 5), writes(0, 5)}, disk), (Seconds{5, 5}));
  // While the second has its latency the first has all: 4 s of work, of which 2 are left at 2.
  EXPECT_EQ(seconds_of({writes(0, 5), writes(1, 5)}, disk), (Seconds{4, 5}));
}

// The second of a lane begins when the first has ended, which was sooner than the even share says.
TEST(SharedDisk, LanesKeepTheirOrder) {
  const Script two = {{Deed::Write, 4}, {Deed::Write, 2}, {Deed::WaitWrite}, {Deed::WaitWrite}};
  EXPECT_EQ(seconds_of({two, writes(0, 2)}, of_one_node(2)), (Seconds{4, 2}));
}

// In steps of time, each rank with what it is at.
std::vector<double> simulated(const std::vector<Script>& scripts, const SharedDisk& disk,
                              double step) {
  struct Rank {
    std::size_t next = 0;
    double computes = 0;
    std::array<std::deque<double>, 2> left;  // of writes and reads that were issued
    std::array<int, 2> ended{};              // and not waited for
    double done_at = -1;
  };
  std::vector<Rank> ranks(scripts.size());
  std::vector<double> seconds(scripts.size(), -1);
  std::size_t done = 0;
  for (long tick = 0; done < scripts.size(); ++tick) {
    const double now = static_cast<double>(tick) * step;
    for (std::size_t r = 0; r < scripts.size(); ++r) {
      Rank& rank = ranks[r];
      if (seconds[r] >= 0) continue;
      while (rank.computes <= 0 && rank.next < scripts[r].size()) {
        const Act& act = scripts[r][rank.next];
        if (act.deed == Deed::WaitWrite || act.deed == Deed::WaitRead) {
          int& ended = rank.ended[act.deed == Deed::WaitRead];
          if (ended == 0) break;
          --ended;
        } else if (act.deed == Deed::Compute) {
          rank.computes = act.seconds;
        } else {
          rank.left[act.deed == Deed::Read].push_back(act.seconds);
        }
        ++rank.next;
      }
      if (rank.computes <= 0 && rank.next == scripts[r].size()) {
        seconds[r] = now;
        ++done;
      }
    }
    std::array<int, 2> moving{};
    for (const Rank& rank : ranks) {
      for (int way : {0, 1}) moving[as_index(way)] += rank.left[as_index(way)].empty() ? 0 : 1;
    }
    for (Rank& rank : ranks) {
      rank.computes -= step;
      for (int way : {0, 1}) {
        if (rank.left[as_index(way)].empty()) continue;
        const int beside = disk.half_duplex ? moving[0] + moving[1] : moving[as_index(way)];
        const double speed =
            static_cast<double>(disk.ranks_on_node * (disk.half_duplex ? 2 : 1)) / beside;
        double& left = rank.left[as_index(way)].front();
        left -= speed * step;
        if (left > 0) continue;
        rank.left[as_index(way)].pop_front();
        ++rank.ended[as_index(way)];
      }
    }
  }
  return seconds;
}

TEST(SharedDisk, IsWhatSmallStepsOfTimeSay) {
  int sooner = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto some = [&] { return 0.25 * static_cast<double>(1 + random() % 16); };
    const int count = 2 + static_cast<int>(seed % 3);
    SharedDisk disk = of_one_node(count);
    disk.half_duplex = seed % 2 == 1;
    std::vector<Script> scripts(as_index(count));
    std::vector<Program> programs;
    for (Script& script : scripts) {
      std::array<int, 2> open{};
      for (int k = 0; k < 12; ++k) {
        const auto deed = static_cast<Deed>(random() % 5);
        if (deed == Deed::WaitWrite && open[0]-- == 0)
          open[0] = 0;
        else if (deed == Deed::WaitRead && open[1]-- == 0)
          open[1] = 0;
        else
          script.push_back({deed, some()});
        if (deed == Deed::Write) ++open[0];
        if (deed == Deed::Read) ++open[1];
      }
      while (open[0]-- > 0) script.push_back({Deed::WaitWrite});
      while (open[1]-- > 0) script.push_back({Deed::WaitRead});
      programs.push_back(program_of(script));
    }
    const std::vector<double> found = seconds_of(scripts, disk);
    constexpr double step = 1.0 / 2048;
    const std::vector<double> wanted = simulated(scripts, disk, step);
    const auto even = replay_together(programs);
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      EXPECT_NEAR(found[rank], wanted[rank], 64 * step) << "rank " << rank;
      EXPECT_LE(found[rank], even[rank].seconds * (1 + 1e-12));
      sooner += found[rank] < even[rank].seconds * (1 - 1e-9);
    }
  }
  std::printf("%d ranks are done sooner than with the even share\n", sooner);
  EXPECT_GT(sooner, 60);
}

}  // namespace
}  // namespace garonne::plan::test
