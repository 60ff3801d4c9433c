#include "plan/program/rotated_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

bool may_be_of_previous_step(const Instruction& instruction) {
  return instruction.operation == Operation::UpdateHost || is_copy(instruction.operation) ||
         gathers_parameters(instruction) || instruction.operation == Operation::Wait;
}

class RotationCheck {
 public:
  explicit RotationCheck(const Program& program)
      : program_(program), used_(program.buffers.size()), changed_(program.buffers.size()) {}

  void run() {
    for (number_ = 0; as_index(number_) < program_.instructions.size(); ++number_) step();
  }

 private:
  const Instruction& instruction() const { return program_.instructions[as_index(number_)]; }

  [[noreturn]] void fail(const std::string& reason) const {
    throw ReplayError(number_, describe(instruction()), reason);
  }

  void step() {
    check_names();
    if (!instruction().of_previous_step) {
      reported_ = reported_ || instruction().operation == Operation::Report;
      note(instruction().reads, used_);
      for (const auto* ids : {&instruction().writes, &instruction().frees}) {
        note(*ids, used_);
        note(*ids, changed_);
      }
      return;
    }
    if (!may_be_of_previous_step(instruction()))
      fail("is of the previous step, of which only updates on the host may be left");
    if (reported_) fail("is of the previous step, and this one has reported its sums");
    expect_before(instruction().reads, changed_, "changed");
    for (const auto* ids : {&instruction().writes, &instruction().frees})
      expect_before(*ids, used_, "used");
  }

  // Each step is whole without the other.
  void check_names() const {
    std::vector<int> names = instruction().after;
    if (instruction().completes >= 0) names.push_back(instruction().completes);
    for (const int other : names) {
      if (other < 0 || other >= number_) fail("names what does not come before it");
      if (program_.instructions[as_index(other)].of_previous_step != instruction().of_previous_step)
        fail(fmt::format("names instruction {}, which is of another step", other));
    }
  }

  void expect_before(const std::vector<int>& ids, const std::vector<bool>& by_this_step,
                     const char* what) const {
    for (const int id : ids) {
      if (by_this_step.at(as_index(id)))
        fail(fmt::format("is of the previous step, and this one has {} {}", what,
                         program_.buffers[as_index(id)].name));
    }
  }

  static void note(const std::vector<int>& ids, std::vector<bool>& noted) {
    for (const int id : ids) noted.at(as_index(id)) = true;
  }

  const Program& program_;
  int number_ = 0;
  bool reported_ = false;
  std::vector<bool> used_;     // by buffer: by instructions of this step so far
  std::vector<bool> changed_;  // likewise
};

}  // namespace

bool is_rotated(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const Instruction& one) { return one.of_previous_step; });
}

Program as_whole_step(const Program& program) {
  Program whole = program;
  for (Buffer& buffer : whole.buffers) buffer.carried = false;
  std::vector<int> order;
  for (const bool left : {false, true}) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.instructions[i].of_previous_step == left) order.push_back(static_cast<int>(i));
    }
  }
  std::vector<int> place_of(order.size());
  for (std::size_t place = 0; place < order.size(); ++place)
    place_of[as_index(order[place])] = static_cast<int>(place);
  const auto renamed = [&](int number) {
    const bool is_there = number >= 0 && as_index(number) < place_of.size();
    return is_there ? place_of[as_index(number)] : number;
  };
  for (std::size_t place = 0; place < order.size(); ++place) {
    Instruction& instruction = whole.instructions[place];
    instruction = program.instructions[as_index(order[place])];
    instruction.of_previous_step = false;
    for (int& earlier : instruction.after) earlier = renamed(earlier);
    instruction.completes = renamed(instruction.completes);
  }
  return whole;
}

void check_rotation(const Program& program) {
  if (is_rotated(program)) RotationCheck(program).run();
}

}  // namespace garonne::plan
