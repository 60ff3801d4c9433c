// Values and records that spend their idle times on lower tiers.
#include "plan/offload/offload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/bytes.hpp"
#include "plan/offload/random_offloads.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/refusal.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/spans.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

const std::map<Tier, TierLinks> links = {{Tier::Host, {{1e-6, 1e9}, {2e-6, 2e9}}},
                                         {Tier::Disk, {{1e-4, 1e8}, {1e-4, 2e8}}}};

Program on_one_rank(const ModelGraph& graph, unsigned seed) {
  const auto all = policy_schedules(graph);
  const int micro_batches = 1 + static_cast<int>(seed % 3);
  Program program =
      make_training_program(graph, step_shape(micro_batches, 1, 0),
                            same_for_all(all[seed % all.size()].second, micro_batches));
  program.tier(Tier::Host).granularity = 256;
  program.tier(Tier::Disk).granularity = 4096;
  return program;
}

// By walking from each place of the list to the next one that names the buffer.
TEST(IdleTimes, AreThoseBetweenTwoUses) {
  int found = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Program program = on_one_rank(random_graph(seed), seed);
    std::vector<IdleTime> slow;
    for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
      const Buffer& buffer = program.buffers[as_index(id)];
      if (buffer.kind != BufferKind::Value && buffer.kind != BufferKind::Record) continue;
      for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
        const auto names = [&](int place) {
          const Instruction& one = program.instructions[as_index(place)];
          return std::count(one.reads.begin(), one.reads.end(), id) +
                     std::count(one.writes.begin(), one.writes.end(), id) >
                 0;
        };
        const auto frees = [&](int place) {
          const Instruction& one = program.instructions[as_index(place)];
          return std::count(one.frees.begin(), one.frees.end(), id) > 0;
        };
        if (!names(i) || frees(i)) continue;
        int next = i + 1;
        while (!names(next) && !frees(next)) ++next;
        if (!names(next) || next == i + 1) continue;
        // The last write, or the use behind which the buffer was idle before.
        int complete = i;
        const auto writes = [&](int place) {
          const Instruction& one = program.instructions[as_index(place)];
          return std::count(one.writes.begin(), one.writes.end(), id) > 0;
        };
        while (!writes(complete) && names(complete - 1)) --complete;
        if (!writes(complete)) {
          bool idle_before = false;
          for (int earlier = complete - 1; earlier >= 0 && !idle_before; --earlier)
            idle_before = names(earlier);
          ASSERT_TRUE(idle_before);
        }
        slow.push_back({id, complete, i, next});
      }
    }
    EXPECT_EQ(idle_times(program), slow) << seed;
    found += static_cast<int>(slow.size());
  }
  EXPECT_GT(found, 1000);
}

TEST(Offloads, AreProvedAndComeToTheSame) {
  int moved = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const ModelGraph graph = random_graph(seed);
    const Program program = on_one_rank(graph, seed);
    const auto offloads = random_offloads(program, random, 1 + seed % 3, {Tier::Host, Tier::Disk});
    const Program with = with_offloads(program, offloads, links);
    moved += static_cast<int>(offloads.size());
    ASSERT_EQ(with.instructions.size(), program.instructions.size() + 4 * offloads.size());
    EXPECT_NO_THROW(prove(with, graph));
    EXPECT_NO_THROW(prove(with, implied_model(with)));
    const Outcome wanted = interpret({{&graph, &program}}, LaneTiming::Late);
    ASSERT_EQ(wanted.failed, "");
    for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random}) {
      const Outcome found = interpret({{&graph, &with}}, timing, seed);
      EXPECT_EQ(found.failed, "");
      EXPECT_FALSE(found.poisoned);
      EXPECT_EQ(found.contents, wanted.contents);
    }
    EXPECT_EQ(with.peak_bytes, replay(with).peak_bytes);
  }
  EXPECT_GT(moved, 1000);
}

// What is live during each instruction of the list as it was: all that was live there, but for what
// is away.
TEST(Offloads, BytesAreOnTheTierWhereTheyAre) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Program program = on_one_rank(random_graph(seed), seed);
    const auto offloads = random_offloads(program, random, 2, {Tier::Host, Tier::Disk});
    const Program with = with_offloads(program, offloads, links);
    const Prediction before = replay(program);
    const Prediction after = replay(with);
    std::size_t place = 0;
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const Instruction& original = program.instructions[as_index(i)];
      while (is_copy(with.instructions[place].operation) ||
             (with.instructions[place].operation == Operation::Wait &&
              is_copy(with.instructions[as_index(with.instructions[place].completes)].operation)))
        ++place;
      ASSERT_EQ(describe(with.instructions[place]), describe(original));
      std::int64_t device = before.during_bytes[as_index(i)];
      std::map<Tier, std::int64_t> lower;
      for (const Offload& offload : offloads) {
        const std::int64_t bytes = program.buffers[as_index(offload.idle.buffer)].bytes;
        if (offload.room_from <= i && i < offload.back_from) device -= bytes;
        if (offload.out_behind < i && i < offload.idle.next_use)
          lower[offload.tier] += round_up(bytes, program.tier(offload.tier).granularity);
      }
      EXPECT_EQ(after.during_bytes[place], device);
      for (const Tier tier : {Tier::Host, Tier::Disk}) {
        const auto& during = after.of(tier).during_bytes;
        EXPECT_EQ(during.empty() ? 0 : during[place], lower[tier]) << to_string(tier);
      }
      ++place;
    }
  }
}

// A value of 4096 bytes between its making and its use, eight instructions of a second in between.
struct Small {
  Program program;
  Offload offload;
};

Small small() {
  Small made;
  made.program.buffers = {{"value", BufferKind::Value, 4096},
                          {"other", BufferKind::Value, 4096},
                          {"record", BufferKind::Record, 4096}};
  for (int i = 0; i < 10; ++i) {
    Instruction one;
    one.operation = Operation::Load;
    one.node = "work";
    one.seconds = 1;
    made.program.instructions.push_back(one);
  }
  made.program.instructions.front().writes = {0};
  made.program.instructions.back().reads = {0};
  made.program.instructions.back().frees = {0};
  made.offload = {{0, 0, 0, 9}, Tier::Host, 0, 4, 6};
  return made;
}

double seconds_with(double out, double in) {
  const Small one = small();
  const std::map<Tier, TierLinks> both = {{Tier::Host, {{0, 4096 / out}, {0, 4096 / in}}}};
  return with_offloads(one.program, {one.offload}, both).seconds;
}

TEST(Offloads, CostWhatDoesNotHide) {
  // Out: from the end of instruction 0 to the beginning of 4. In: from there of 6 to 9.
  EXPECT_DOUBLE_EQ(seconds_with(3, 3), 10);
  EXPECT_DOUBLE_EQ(seconds_with(5, 3), 12);
  EXPECT_DOUBLE_EQ(seconds_with(3, 4.5), 11.5);
  EXPECT_DOUBLE_EQ(seconds_with(4, 4), 12);
}

TEST(Offloads, OfOneLaneQueueBehindEachOther) {
  Small one = small();
  one.program.instructions[1].writes = {1};
  one.program.instructions[8].reads = {1};
  one.program.instructions[8].frees = {1};
  const Offload second = {{1, 1, 1, 8}, Tier::Host, 1, 5, 5};
  const std::map<Tier, TierLinks> both = {{Tier::Host, {{0, 4096 / 3.0}, {0, 4096 / 0.5}}}};
  const Program with = with_offloads(one.program, {one.offload, second}, both);
  const auto spans = spans_of(with);
  std::vector<std::pair<double, double>> out;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (with.instructions[i].operation == Operation::CopyOut)
      out.emplace_back(spans[i].begin, spans[i].end);
  }
  EXPECT_EQ(out, (std::vector<std::pair<double, double>>{{1, 4}, {4, 7}}));
  EXPECT_DOUBLE_EQ(with.seconds, 12);
}

TEST(Offloads, GoToAnotherTierAsTheyAre) {
  const Small one = small();
  const Program legal = with_offloads(one.program, {one.offload}, links);
  ASSERT_EQ(refusal(legal), "");
  const auto says = [&](const char* reason, const auto& change) {
    Program program = legal;
    change(program, program.instructions[1]);
    EXPECT_NE(refusal(program).find(reason), std::string::npos)
        << reason << ": " << refusal(program);
  };
  ASSERT_EQ(legal.instructions[1].operation, Operation::CopyOut);
  says("copies nothing", [](Program&, Instruction& copy) { copy.arguments.inputs.clear(); });
  says("copies nothing", [](Program&, Instruction& copy) { copy.arguments.output = -1; });
  says("on the tier device",
       [](Program& program, Instruction&) { program.buffers.back().tier = Tier::Device; });
  says("on the tier disk",
       [](Program& program, Instruction&) { program.buffers.back().tier = Tier::Disk; });
  says("goes from value", [](Program&, Instruction& copy) { copy.operation = Operation::CopyIn; });
  says("is on the lane copy-in", [](Program&, Instruction& copy) { copy.lane = Lane::CopyIn; });
  says("is on the lane copy-out", [](Program&, Instruction& copy) { copy.channel.emplace(); });
  says("size and kind", [](Program& program, Instruction&) { program.buffers.back().bytes *= 2; });
  says("size and kind",
       [](Program& program, Instruction&) { program.buffers.back().kind = BufferKind::Record; });
  says("size and kind", [](Program& program, Instruction&) {
    program.buffers.back().elements = 4;
    program.buffers.back().element_bytes = 4;
  });
  says("copies nothing", [](Program&, Instruction& copy) {
    copy.arguments.inputs.push_back(copy.arguments.inputs[0]);
  });
}

// Bytes and order are right where the wrong value comes back; what is in it is not.
TEST(Offloads, ThatBringBackAnotherValueAreRefused) {
  int swapped = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const ModelGraph graph = random_graph(seed);
    Program program = on_one_rank(graph, 3 * seed + 1);  // of two micro-batches
    const Program with =
        with_offloads(program, random_offloads(program, random, 1, {Tier::Host}), links);
    // Two copies in that stand where the sources of both are there.
    for (std::size_t i = 0; i < with.instructions.size(); ++i) {
      const Instruction& back = with.instructions[i];
      if (back.operation != Operation::CopyIn) continue;
      for (const int other : live_during(with, static_cast<int>(i))) {
        const Buffer& wrong = with.buffers[as_index(other)];
        const int right = back.arguments.inputs[0];
        const Buffer& source = with.buffers[as_index(right)];
        if (other == right || wrong.tier != Tier::Host || wrong.bytes != source.bytes ||
            wrong.kind != source.kind)
          continue;
        Program mutant = with;
        Instruction& copy = mutant.instructions[i];
        copy.reads = {other};
        copy.arguments.inputs = {other};
        try {
          replay(mutant);
          prove(mutant, graph);
          ADD_FAILURE() << "seed " << seed << ": " << describe(copy) << " takes " << wrong.name;
        } catch (const ReplayError&) {
          ++swapped;
        }
        break;
      }
      if (swapped > 200) return;
    }
  }
  EXPECT_GT(swapped, 100);
}

}  // namespace
}  // namespace garonne::plan::test
