// Edits of Programs against a list that is changed step by step, and what replay says of the
// result.
#include "plan/program/program_edit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <string>

#include "base/error.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

// The slow way: every instruction has a label for ever, names others by their labels, and is put
// into a linked list by walking there. Places in the list are looked up at the very end.
struct Labelled {
  int label = 0;
  int behind = -1;  // put in behind this label
  Instruction instruction;
};

class SlowEdit {
 public:
  explicit SlowEdit(const Program& program) : program_(program) {
    for (const Instruction& instruction : program.instructions)
      entries_.push_back({next_label_++, -1, instruction});
    end_label_ = next_label_;
  }

  int insert_before(int place, const Instruction& instruction) {
    entries_.insert(place == end_label_ ? entries_.end() : find(place),
                    {next_label_, -1, instruction});
    return next_label_++;
  }
  int insert_after(int place, const Instruction& instruction) {
    auto where = std::next(find(place));
    while (where != entries_.end() && where->behind == place) ++where;
    entries_.insert(where, {next_label_, place, instruction});
    return next_label_++;
  }
  void remove(int number) { removed_.push_back(number); }

  Program result() const {
    std::vector<Labelled> kept;
    for (const Labelled& entry : entries_) {
      if (std::find(removed_.begin(), removed_.end(), entry.label) == removed_.end())
        kept.push_back(entry);
    }
    const auto place_of = [&](int label) {
      for (std::size_t place = 0; place < kept.size(); ++place) {
        if (kept[place].label == label) return static_cast<int>(place);
      }
      ADD_FAILURE() << "nothing has the label " << label;
      return -1;
    };
    Program edited = program_;
    edited.instructions.clear();
    for (const Labelled& entry : kept) {
      Instruction instruction = entry.instruction;
      if (instruction.completes >= 0) instruction.completes = place_of(instruction.completes);
      for (int& earlier : instruction.after) earlier = place_of(earlier);
      edited.instructions.push_back(instruction);
    }
    return edited;
  }

 private:
  std::list<Labelled>::iterator find(int label) {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&](const Labelled& entry) { return entry.label == label; });
  }

  const Program& program_;
  int next_label_ = 0;
  int end_label_ = 0;
  std::list<Labelled> entries_;
  std::vector<int> removed_;
};

using Random = std::mt19937;

int below(Random& random, int most) {
  return std::uniform_int_distribution<int>(0, most - 1)(random);
}

// Instructions that mean nothing, and name some of those before them.
Program random_list(Random& random) {
  Program program;
  const int count = below(random, 12);
  for (int i = 0; i < count; ++i) {
    Instruction instruction;
    instruction.node = "old" + std::to_string(i);
    if (i > 0 && below(random, 3) == 0) instruction.completes = below(random, i);
    while (i > 0 && below(random, 3) == 0) instruction.after.push_back(below(random, i));
    program.instructions.push_back(instruction);
  }
  return program;
}

TEST(ProgramEdit, DoesWhatOneChangeAfterTheOtherDoes) {
  int removed = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    Program program = random_list(random);
    const int count = static_cast<int>(program.instructions.size());
    const Program before = program;
    ProgramEdit edit(program);
    SlowEdit slow(before);
    int numbers = count;
    std::vector<bool> gone(as_index(count), false);
    for (int k = below(random, 8); k > 0; --k) {
      Instruction instruction;
      instruction.node = "new" + std::to_string(numbers);
      if (numbers > 0 && below(random, 2) == 0) instruction.completes = below(random, numbers);
      while (numbers > 0 && below(random, 2) == 0)
        instruction.after.push_back(below(random, numbers));
      if (count > 0 && below(random, 2) == 0) {
        const int place = below(random, count);
        ASSERT_EQ(edit.insert_after(place, instruction), numbers);
        ASSERT_EQ(slow.insert_after(place, instruction), numbers);
      } else {
        const int place = below(random, count + 1);
        ASSERT_EQ(edit.insert_before(place, instruction), numbers);
        ASSERT_EQ(slow.insert_before(place, instruction), numbers);
      }
      ++numbers;
    }
    // What nobody names may go, in any order.
    const Program grown = slow.result();
    for (int number = count - 1; number >= 0; --number) {
      const auto names = [&](const Instruction& one) {
        const auto place = std::find_if(
            grown.instructions.begin(), grown.instructions.end(), [&](const Instruction& other) {
              return other.node == before.instructions[as_index(number)].node;
            });
        const int there = static_cast<int>(place - grown.instructions.begin());
        return one.completes == there ||
               std::find(one.after.begin(), one.after.end(), there) != one.after.end();
      };
      if (below(random, 2) == 0 ||
          std::any_of(grown.instructions.begin(), grown.instructions.end(), names))
        continue;
      edit.remove(number);
      slow.remove(number);
      gone[as_index(number)] = true;
      ++removed;
    }
    const std::vector<int> place_of = edit.apply();
    ASSERT_EQ(program_hash(program), program_hash(slow.result())) << "seed " << seed;
    ASSERT_EQ(place_of.size(), as_index(numbers));
    for (int number = 0; number < numbers; ++number) {
      const int place = place_of[as_index(number)];
      if (number < count && gone[as_index(number)]) {
        EXPECT_EQ(place, -1);
        continue;
      }
      EXPECT_EQ(program.instructions[as_index(place)].node,
                number < count ? before.instructions[as_index(number)].node
                               : "new" + std::to_string(number));
    }
  }
  EXPECT_GT(removed, 1000);
}

// Whole steps with sums, gathers and waits in them.
std::vector<Program> steps() {
  std::vector<Program> programs;
  for (unsigned seed = 0; seed < 12; ++seed) {
    const ModelGraph graph = random_graph(seed);
    const auto schedules = policy_schedules(graph);
    StepShape step = step_shape(1 + static_cast<int>(seed) % 2, 1 + static_cast<int>(seed) % 3,
                                seed % 2 == 0 ? 0 : 200);
    step.zero = step.data_group.size() > 1 && seed % 2 == 1 ? 3 : 0;
    step.gathers_ahead = static_cast<int>(seed) % 3;
    programs.push_back(make_training_program(
        graph, step, same_for_all(schedules[seed % schedules.size()].second, step.micro_batches)));
  }
  return programs;
}

// Pieces of work beside the step that change nothing: they read on two lanes, the second after the
// first, what no instruction before their waits writes.
int insert_readers(Random& random, const Program& program, ProgramEdit& edit) {
  std::vector<int> lasting;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    if (program.buffers[id].live_at_end) lasting.push_back(static_cast<int>(id));
  }
  const int buffer = lasting[as_index(below(random, static_cast<int>(lasting.size())))];
  const int count = static_cast<int>(program.instructions.size());
  const int from = below(random, count + 1);
  int last = from;
  while (last < count) {
    const auto& writes = program.instructions[as_index(last)].writes;
    if (std::find(writes.begin(), writes.end(), buffer) != writes.end()) break;
    ++last;
  }
  Instruction first;
  first.operation = Operation::Load;
  first.node = "first";
  first.lane = Lane::CopyOut;
  first.reads = {buffer};
  Instruction second = first;
  second.node = "second";
  second.lane = Lane::DiskWrite;
  second.after = {edit.insert_before(from, first)};
  Instruction wait_first;
  wait_first.operation = Operation::Wait;
  wait_first.completes = second.after[0];
  Instruction wait_second = wait_first;
  wait_second.completes = edit.insert_before(from, second);
  const int until = from + below(random, last - from + 1);
  edit.insert_before(until, wait_second);
  edit.insert_before(until, wait_first);
  return 4;
}

TEST(ProgramEdit, EditedStepsReplay) {
  Random random(7);
  for (const Program& original : steps()) {
    const Prediction before = replay(original);
    for (int trial = 0; trial < 20; ++trial) {
      Program program = original;
      ProgramEdit edit(program);
      int more = 0;
      for (int k = 1 + below(random, 4); k > 0; --k) more += insert_readers(random, original, edit);
      const std::vector<int> place_of = edit.apply();
      ASSERT_EQ(program.instructions.size(), original.instructions.size() + as_index(more));
      Prediction after;
      ASSERT_NO_THROW(after = replay(program));
      ASSERT_NO_THROW(check_order(program));
      EXPECT_EQ(after.peak_bytes, before.peak_bytes);
      for (std::size_t i = 0; i < original.instructions.size(); ++i) {
        EXPECT_EQ(after.live_bytes[as_index(place_of[i])], before.live_bytes[i]);
        EXPECT_EQ(after.during_bytes[as_index(place_of[i])], before.during_bytes[i]);
      }
      // Taken out again, nothing is left of them.
      ProgramEdit back(program);
      std::vector<bool> is_old(program.instructions.size(), false);
      for (std::size_t i = 0; i < original.instructions.size(); ++i)
        is_old[as_index(place_of[i])] = true;
      for (std::size_t i = 0; i < is_old.size(); ++i) {
        if (!is_old[i]) back.remove(static_cast<int>(i));
      }
      back.apply();
      EXPECT_EQ(program_hash(program), program_hash(original));
    }
  }
}

std::string refusal(ProgramEdit& edit) {
  try {
    edit.apply();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(ProgramEdit, NobodyNamesWhatIsNotThere) {
  Program program;
  Instruction sum;
  sum.operation = Operation::AllReduce;
  sum.node = "gradient";
  sum.lane = Lane::Collective;
  Instruction wait;
  wait.operation = Operation::Wait;
  wait.node = "gradient";
  wait.completes = 0;
  program.instructions = {sum, wait};
  const std::string before = program_hash(program);
  {
    ProgramEdit edit(program);
    edit.remove(0);
    EXPECT_NE(refusal(edit).find("wait gradient names instruction 0, all-reduce gradient, which is"
                                 " taken out"),
              std::string::npos);
    EXPECT_EQ(program_hash(program), before);
  }
  for (const bool by_wait : {true, false}) {
    Instruction follower;
    follower.node = "follower";
    if (by_wait) {
      follower.completes = 3;
    } else {
      follower.after = {3};
    }
    ProgramEdit edit(program);
    EXPECT_EQ(edit.insert_after(1, follower), 2);
    EXPECT_NE(refusal(edit).find("follower names instruction 3, and there is none"),
              std::string::npos);
    EXPECT_EQ(program_hash(program), before);
  }
  {
    // Who named it may name another before the edit is made.
    ProgramEdit edit(program);
    const int other = edit.insert_before(0, sum);
    edit.remove(0);
    program.instructions[1].completes = other;
    EXPECT_EQ(edit.apply(), (std::vector<int>{-1, 1, 0}));
    EXPECT_EQ(program.instructions[1].completes, 0);
    EXPECT_THROW(edit.apply(), InternalError);
  }
}

TEST(ProgramEdit, PlacesAreOfTheList) {
  Program program;
  program.instructions.resize(2);
  ProgramEdit edit(program);
  EXPECT_THROW(edit.insert_before(3, {}), InternalError);
  EXPECT_THROW(edit.insert_before(-1, {}), InternalError);
  EXPECT_THROW(edit.insert_after(2, {}), InternalError);
  EXPECT_THROW(edit.insert_after(-1, {}), InternalError);
  edit.insert_before(0, {});
  EXPECT_THROW(edit.remove(2), InternalError);
  program.instructions.resize(3);
  EXPECT_THROW(edit.apply(), InternalError);
}

}  // namespace
}  // namespace garonne::plan::test
