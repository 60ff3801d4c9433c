#include "plan/program/program_edit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "base/error.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

// All numbers of other instructions that an instruction holds.
template <typename Function>
void for_each_named(Instruction& instruction, const Function& change) {
  if (instruction.completes >= 0) change(instruction.completes);
  for (int& earlier : instruction.after) change(earlier);
}

template <typename Function>
void for_each_named(const Instruction& instruction, const Function& look) {
  if (instruction.completes >= 0) look(instruction.completes);
  for (const int earlier : instruction.after) look(earlier);
}

}  // namespace

ProgramEdit::ProgramEdit(Program& program)
    : program_(program),
      count_(static_cast<int>(program.instructions.size())),
      removed_(program.instructions.size(), false) {}

int ProgramEdit::insert_before(int place, Instruction instruction) {
  expect(place >= 0 && place <= count_, "puts an instruction before none of the list");
  return insert(place, true, std::move(instruction));
}

int ProgramEdit::insert_after(int place, Instruction instruction) {
  expect(place >= 0 && place < count_, "puts an instruction behind none of the list");
  return insert(place + 1, false, std::move(instruction));
}

int ProgramEdit::insert(int gap, bool before, Instruction instruction) {
  const int number = count_ + static_cast<int>(inserted_.size());
  insertions_.push_back({gap, before, number});
  inserted_.push_back(std::move(instruction));
  return number;
}

void ProgramEdit::remove(int number) {
  expect(number >= 0 && number < count_, "takes out what is not in the list");
  removed_[as_index(number)] = true;
}

void ProgramEdit::check_names(const std::vector<int>& place_of) const {
  const auto check = [&](const Instruction& instruction) {
    for_each_named(instruction, [&](int named) {
      if (named < 0 || as_index(named) >= place_of.size()) {
        throw InternalError(fmt::format("{} names instruction {}, and there is none",
                                        describe(instruction), named));
      }
      if (place_of[as_index(named)] < 0) {
        throw InternalError(fmt::format("{} names instruction {}, {}, which is taken out",
                                        describe(instruction), named,
                                        describe(program_.instructions[as_index(named)])));
      }
    });
  };
  for (int number = 0; number < count_; ++number) {
    if (!removed_[as_index(number)]) check(program_.instructions[as_index(number)]);
  }
  for (const Instruction& instruction : inserted_) check(instruction);
}

std::vector<int> ProgramEdit::apply() {
  expect(!applied_ && as_index(count_) == program_.instructions.size(),
         "a Program's list changed under an edit");
  // Calls may come in any order of places; those for one place keep theirs.
  std::stable_sort(insertions_.begin(), insertions_.end(),
                   [](const Insertion& a, const Insertion& b) {
                     return std::tie(a.gap, a.before) < std::tie(b.gap, b.before);
                   });
  std::vector<int> order;  // numbers
  order.reserve(as_index(count_) + inserted_.size());
  auto next = insertions_.begin();
  for (int number = 0; number <= count_; ++number) {
    for (; next != insertions_.end() && next->gap == number; ++next) order.push_back(next->number);
    if (number < count_ && !removed_[as_index(number)]) order.push_back(number);
  }
  std::vector<int> place_of(as_index(count_) + inserted_.size(), -1);
  for (std::size_t place = 0; place < order.size(); ++place)
    place_of[as_index(order[place])] = static_cast<int>(place);
  check_names(place_of);
  std::vector<Instruction> edited;
  edited.reserve(order.size());
  for (const int number : order) {
    Instruction& source = number < count_ ? program_.instructions[as_index(number)]
                                          : inserted_[as_index(number - count_)];
    edited.push_back(std::move(source));
    for_each_named(edited.back(), [&](int& named) { named = place_of[as_index(named)]; });
  }
  program_.instructions = std::move(edited);
  applied_ = true;
  return place_of;
}

}  // namespace garonne::plan
