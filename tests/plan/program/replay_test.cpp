// Replay refuses broken Programs and says which instruction; times overlap as they should.
#include "plan/program/replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

void expect_illegal(const Program& program, int instruction, const std::string& part) {
  try {
    replay(program);
  } catch (const ReplayError& error) {
    EXPECT_EQ(error.instruction(), instruction) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("instruction " + std::to_string(instruction)),
              std::string::npos)
        << error.what();
    return;
  }
  ADD_FAILURE() << "accepted; expected: " << part;
}

// A whole step: two micro-batches, one parameter used by two nodes, nothing recomputed.
Program step_program() {
  const ModelGraph graph = random_graph(11);
  return make_training_program(graph, step_shape(2, 1, 0),
                               same_for_all(schedule_of(graph, "keep-all"), 2));
}

// One reduction: 0 makes the gradient, 1 reduces it, 2 works on something else, 3 waits, 4 reads
// it.
Program reduction_program(int rank_count = 1) {
  Program program;
  program.buffers = {{"gradient", BufferKind::Gradient, 128, 32, 4},
                     {"staging", BufferKind::Communication, 64},
                     {"parameter", BufferKind::Parameter, 256, 64, 4, Tier::Device, true, true}};
  std::vector<int> members;
  for (int rank = 0; rank < rank_count; ++rank) members.push_back(rank);
  Instruction backward;
  backward.operation = Operation::Backward;
  backward.reads = {2};
  backward.writes = {0};
  backward.seconds = 1;
  Instruction reduce;
  reduce.operation = Operation::AllReduce;
  reduce.reads = {0};
  reduce.writes = {0, 1};
  reduce.seconds = 4;
  reduce.channel = Channel{"all-reduce", GroupAxis::Data, members, -1, 0, 100};
  reduce.lane = Lane::Collective;
  Instruction work;
  work.operation = Operation::Forward;
  work.reads = {2};
  work.seconds = 3;
  Instruction wait;
  wait.operation = Operation::Wait;
  wait.completes = 1;
  wait.frees = {1};
  Instruction update;
  update.operation = Operation::Update;
  update.reads = {0, 2};
  update.writes = {2};
  update.frees = {0};
  update.seconds = 2;
  program.instructions = {backward, reduce, work, wait, update};
  return program;
}

constexpr int first_parameter = 0;  // they come first of all buffers

int first_of(const Program& program, const std::function<bool(const Instruction&)>& wanted,
             int from = 0) {
  for (int i = from; i < static_cast<int>(program.instructions.size()); ++i) {
    if (wanted(program.instructions[as_index(i)])) return i;
  }
  ADD_FAILURE() << "no such instruction";
  return 0;
}

bool reads(const Instruction& instruction, int buffer) {
  return std::find(instruction.reads.begin(), instruction.reads.end(), buffer) !=
         instruction.reads.end();
}

// The instruction that frees a value, the value, and an earlier reader of it.
struct Freed {
  int reader = -1;
  int last = -1;
  int buffer = -1;
};
Freed value_with_two_readers(const Program& program) {
  for (int last = 0; last < static_cast<int>(program.instructions.size()); ++last) {
    for (const int buffer : program.instructions[as_index(last)].frees) {
      if (!reads(program.instructions[as_index(last)], buffer)) continue;
      for (int reader = 0; reader < last; ++reader) {
        if (reads(program.instructions[as_index(reader)], buffer)) {
          // The next reader after that one is who finds out.
          const int next = first_of(
              program, [&](const Instruction& instruction) { return reads(instruction, buffer); },
              reader + 1);
          if (next == last) return {reader, last, buffer};
        }
      }
    }
  }
  ADD_FAILURE() << "no value is read twice";
  return {};
}

TEST(Replay, AcceptsWhatTheOthersBreak) {
  EXPECT_NO_THROW(replay(step_program()));
  EXPECT_NO_THROW(replay(reduction_program()));
}

TEST(Replay, ReadOfADeadBuffer) {
  Program program = step_program();
  const Freed freed = value_with_two_readers(program);
  program.instructions[as_index(freed.last + 1)].reads.push_back(freed.buffer);
  expect_illegal(program, freed.last + 1, "not live");
}

TEST(Replay, ReadOfABufferThatIsNeverMade) {
  Program program = step_program();
  program.buffers.push_back({"ghost", BufferKind::Value, 64});
  program.instructions[3].reads.push_back(static_cast<int>(program.buffers.size()) - 1);
  expect_illegal(program, 3, "ghost");
}

TEST(Replay, FreedTooEarly) {
  Program program = step_program();
  const Freed freed = value_with_two_readers(program);
  std::erase(program.instructions[as_index(freed.last)].frees, freed.buffer);
  program.instructions[as_index(freed.reader)].frees.push_back(freed.buffer);
  expect_illegal(program, freed.last, "not live");
}

TEST(Replay, FreedTwice) {
  Program program = step_program();
  const Freed freed = value_with_two_readers(program);
  Program later = program;
  later.instructions[as_index(freed.last + 1)].frees.push_back(freed.buffer);
  expect_illegal(later, freed.last + 1, "frees");
  program.instructions[as_index(freed.last)].frees.push_back(freed.buffer);
  expect_illegal(program, freed.last, "frees");
}

TEST(Replay, NeverFreed) {
  Program program = step_program();
  const Freed freed = value_with_two_readers(program);
  std::erase(program.instructions[as_index(freed.last)].frees, freed.buffer);
  expect_illegal(program, static_cast<int>(program.instructions.size()), "still live");
}

TEST(Replay, FreedAndShouldBeLiveAtTheEnd) {
  Program program = step_program();
  const auto last = static_cast<int>(program.instructions.size()) - 1;
  program.instructions.back().frees.push_back(first_parameter);
  expect_illegal(program, last + 1, "should be live");
}

TEST(Replay, MakeOfALiveBuffer) {
  Program program = step_program();
  const int load =
      first_of(program, [](const Instruction& i) { return i.operation == Operation::Load; });
  program.instructions[as_index(load)].writes.push_back(first_parameter);
  expect_illegal(program, load, "already live");
}

// The two contributions of two micro-batches to one gradient.
std::pair<int, int> contributions(const Program& program) {
  const auto contributes = [](const Instruction& instruction) {
    return !instruction.arguments.parameter_gradients.empty();
  };
  const int first = first_of(program, contributes);
  const GradientTarget target =
      program.instructions[as_index(first)].arguments.parameter_gradients[0];
  const int second = first_of(
      program,
      [&](const Instruction& instruction) {
        const auto& targets = instruction.arguments.parameter_gradients;
        return std::any_of(targets.begin(), targets.end(), [&](const GradientTarget& other) {
          return other.range == target.range;
        });
      },
      first + 1);
  return {first, second};
}

TEST(Replay, SumsOutOfOrder) {
  Program swapped = step_program();
  const auto [first, second] = contributions(swapped);
  // Micro-batch 1 before micro-batch 0.
  std::swap(swapped.instructions[as_index(first)].micro_batch,
            swapped.instructions[as_index(second)].micro_batch);
  if (swapped.instructions[as_index(first)].micro_batch ==
      swapped.instructions[as_index(second)].micro_batch) {
    // Two nodes of one micro-batch: the later node of the list comes first.
    std::swap(swapped.instructions[as_index(first)].node_index,
              swapped.instructions[as_index(second)].node_index);
  }
  expect_illegal(swapped, second, "canonical order");
  Program twice = step_program();
  twice.instructions[as_index(second)].micro_batch =
      twice.instructions[as_index(first)].micro_batch;
  twice.instructions[as_index(second)].node_index = twice.instructions[as_index(first)].node_index;
  expect_illegal(twice, second, "canonical order");
}

TEST(Replay, FirstContributionMissing) {
  Program program = step_program();
  const int first = contributions(program).first;
  program.instructions[as_index(first)].arguments.parameter_gradients[0].accumulate = true;
  expect_illegal(program, first, "no first contribution");
}

TEST(Replay, LaterContributionOverwrites) {
  Program program = step_program();
  const int second = contributions(program).second;
  for (auto& target : program.instructions[as_index(second)].arguments.parameter_gradients)
    target.accumulate = false;
  expect_illegal(program, second, "overwrites");
}

TEST(Replay, WaitWithoutReduction) {
  Program nothing = reduction_program();
  nothing.instructions[3].completes = 0;
  expect_illegal(nothing, 3, "waits for nothing");
  Program twice = reduction_program();
  twice.instructions[3].frees.clear();
  twice.instructions.insert(twice.instructions.begin() + 4, twice.instructions[3]);
  expect_illegal(twice, 4, "waits for nothing");
  Program before = reduction_program();
  before.instructions[3].completes = 4;
  expect_illegal(before, 3, "waits for nothing");
}

TEST(Replay, ReductionNeverWaitedFor) {
  Program program = reduction_program();
  program.instructions.resize(3);
  program.buffers[0].live_at_end = program.buffers[1].live_at_end = true;
  expect_illegal(program, 1, "never waited for");
}

TEST(Replay, UseOfABufferInFlight) {
  Program written = reduction_program();
  written.instructions[2].reads = {0};
  written.instructions[2].writes = {0};
  expect_illegal(written, 2, "asynchronous");
  Program freed = reduction_program();
  freed.instructions[2].frees = {1};
  expect_illegal(freed, 2, "asynchronous");
  // The reduction writes the gradient in place: what is read meanwhile is neither the part nor the
  // sum.
  Program read = reduction_program();
  read.instructions[2].reads = {0};
  expect_illegal(read, 2, "asynchronous");
}

TEST(Replay, RolesMustBeReadOrWritten) {
  const std::function<void(Arguments&, int)> roles[] = {
      [](Arguments& a, int id) { a.inputs = {id}; },
      [](Arguments& a, int id) { a.output = id; },
      [](Arguments& a, int id) { a.record = {id}; },
      [](Arguments& a, int id) { a.output_gradient = id; },
      [](Arguments& a, int id) { a.input_gradients = {id}; },
      [](Arguments& a, int id) { a.accumulated = {id}; },
      [](Arguments& a, int id) { a.pinned_output = id; },
      [](Arguments& a, int id) { a.staging = id; },
  };
  for (const auto& role : roles) {
    Program program = reduction_program();
    role(program.instructions[2].arguments, 1);
    expect_illegal(program, 2, "neither reads nor writes");
    program.instructions[2].reads = {2};
    role(program.instructions[2].arguments, 2);
    EXPECT_NO_THROW(replay(program));
  }
  Program parameter = reduction_program();
  parameter.instructions[2].arguments.parameters = {{1, 0, 0}};
  expect_illegal(parameter, 2, "does not read it");
  Program target = reduction_program();
  target.instructions[2].arguments.parameter_gradients = {{{2, 0, 1}, false, 0}};
  expect_illegal(target, 2, "does not write it");
}

TEST(Replay, NumbersThatCannotBe) {
  Program transient = reduction_program();
  transient.instructions[2].transient_bytes = -1;
  expect_illegal(transient, 2, "negative transient");
  Program size = reduction_program();
  size.buffers[1].bytes = -64;
  expect_illegal(size, 0, "staging");
  for (const int id : {-1, 3, 1000000}) {
    Program read = reduction_program();
    read.instructions[2].reads = {id};
    expect_illegal(read, 2, "id");
    Program write = reduction_program();
    write.instructions[2].writes = {id};
    expect_illegal(write, 2, "id");
    Program freed = reduction_program();
    freed.instructions[2].frees = {id};
    expect_illegal(freed, 2, "id");
  }
}

TEST(Replay, CommunicationOverlapsWork) {
  // 1 s of backward, then 3 s of work beside 4 s of reduction, then 2 s of update.
  EXPECT_DOUBLE_EQ(replay(reduction_program()).seconds, 1 + 4 + 2);
  Program longer = reduction_program();
  longer.instructions[2].seconds = 10;
  EXPECT_DOUBLE_EQ(replay(longer).seconds, 1 + 10 + 2);
}

TEST(Replay, BytesAndTheirPeak) {
  Program program = reduction_program();
  program.instructions[2].transient_bytes = 1000;
  const Prediction prediction = replay(program);
  EXPECT_EQ(prediction.peak_bytes, 256 + 128 + 64 + 1000);
  EXPECT_EQ(prediction.peak_instruction, 2);
  EXPECT_EQ(prediction.peak_transient_bytes, 1000);
  EXPECT_EQ(prediction.static_bytes, 256);
  EXPECT_EQ(prediction.live_bytes, (std::vector<std::int64_t>{384, 448, 448, 384, 256}));
  EXPECT_EQ(prediction.during_bytes, (std::vector<std::int64_t>{384, 448, 1448, 448, 384}));
  EXPECT_EQ(prediction.peak_by_kind[static_cast<std::size_t>(BufferKind::Gradient)], 128);
  EXPECT_EQ(prediction.peak_by_kind[static_cast<std::size_t>(BufferKind::Communication)], 64);
  // What lies on the host is nobody's budget.
  for (const Tier tier : {Tier::Host, Tier::Disk}) {
    program.buffers[1].tier = tier;
    const Prediction below = replay(program);
    EXPECT_EQ(below.peak_bytes, 256 + 128 + 1000);
    EXPECT_EQ(below.of(tier).peak_bytes, 64);
    EXPECT_EQ(below.of(tier).peak_instruction, 1);
    EXPECT_EQ(below.of(tier).live_bytes, (std::vector<std::int64_t>{0, 64, 64, 0, 0}));
    EXPECT_EQ(below.of(tier == Tier::Host ? Tier::Disk : Tier::Host).peak_bytes, 0);
  }
}

TEST(Replay, BytesBeyondTheBudgetAreTheCallersBusiness) {
  Program program = reduction_program();
  program.tier(Tier::Device).budget_bytes = 1;
  EXPECT_NO_THROW(replay(program));
}

std::string together_error(const std::vector<Program>& programs) {
  try {
    replay_together(programs);
  } catch (const ReplayError& error) {
    return error.what();
  }
  return "";
}

std::vector<int> reductions(const Program& program) {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    if (program.instructions[as_index(i)].channel) found.push_back(i);
  }
  return found;
}

TEST(ReplayTogether, EqualProgramsMeet) {
  const ModelGraph graph = chain(3, 2);
  for (const int ranks : {1, 2, 3}) {
    const Program program = make_training_program(graph, step_shape(2, ranks, 100),
                                                  same_for_all(schedule_of(graph, "full"), 2));
    const auto predictions = replay_together(std::vector<Program>(as_index(ranks), program));
    ASSERT_EQ(predictions.size(), as_index(ranks));
    for (const auto& prediction : predictions)
      EXPECT_EQ(prediction.peak_bytes, replay(program).peak_bytes);
  }
}

TEST(ReplayTogether, CollectivesSwappedOnOneRank) {
  const ModelGraph graph = chain(3, 2);
  const Program program = make_training_program(graph, step_shape(1, 3, 0),
                                                same_for_all(schedule_of(graph, "keep-all"), 1));
  const auto found = reductions(program);
  ASSERT_GE(found.size(), 3U);
  for (const std::size_t rank : {0U, 1U, 2U}) {
    std::vector<Program> programs(3, program);
    auto& instructions = programs[rank].instructions;
    std::swap(instructions[as_index(found[1])].channel, instructions[as_index(found[2])].channel);
    const std::string error = together_error(programs);
    EXPECT_NE(error.find("collective 1"), std::string::npos) << error;
    EXPECT_NE(error.find("meets none like it"), std::string::npos) << error;
  }
}

TEST(ReplayTogether, CollectiveLostOnOneRank) {
  Program alone = reduction_program(2);
  alone.instructions[1].channel.reset();
  alone.instructions[1].lane = Lane::Compute;
  alone.instructions[3].operation = Operation::Forward;
  alone.instructions[3].completes = -1;
  for (const bool first : {true, false}) {
    std::vector<Program> programs = {reduction_program(2), reduction_program(2)};
    EXPECT_EQ(together_error(programs), "");
    programs[first ? 0 : 1] = alone;
    EXPECT_NE(together_error(programs).find("meets none like it"), std::string::npos)
        << together_error(programs);
  }
}

TEST(ReplayTogether, OneCollectiveMoreOnOneRank) {
  for (const bool first : {true, false}) {
    std::vector<Program> programs = {reduction_program(2), reduction_program(2)};
    Program& more = programs[first ? 0 : 1];
    Instruction again = more.instructions[1];
    again.writes = {0};
    again.channel->tag = 1;
    Instruction wait = more.instructions[3];
    wait.completes = 4;
    wait.frees.clear();
    more.instructions.insert(more.instructions.begin() + 4, {again, wait});
    EXPECT_NE(together_error(programs).find("collective 1"), std::string::npos)
        << together_error(programs);
  }
}

TEST(ReplayTogether, OtherBytes) {
  for (const std::size_t rank : {0U, 1U}) {
    std::vector<Program> programs = {reduction_program(2), reduction_program(2)};
    programs[rank].instructions[1].channel->bytes = 101;
    EXPECT_NE(together_error(programs).find("instruction 1"), std::string::npos)
        << together_error(programs);
  }
}

TEST(ReplayTogether, NoMemberOfItsGroup) {
  std::vector<Program> programs = {reduction_program(2), reduction_program(2),
                                   reduction_program(2)};
  EXPECT_NE(together_error(programs).find("rank 2 is no member"), std::string::npos)
      << together_error(programs);
}

TEST(ReplayTogether, EachProgramIsCheckedAlone) {
  std::vector<Program> programs = {reduction_program(2), reduction_program(2)};
  programs[1].instructions[4].frees.clear();
  EXPECT_NE(together_error(programs).find("still live"), std::string::npos)
      << together_error(programs);
}

}  // namespace
}  // namespace garonne::plan::test
