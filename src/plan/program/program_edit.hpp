// Changes of a Program's list of instructions: what is put in, what is taken out, and how
// instructions that name others (`completes`, `after`) name them afterwards.
#pragma once

#include <utility>
#include <vector>

#include "plan/program/program.hpp"

namespace garonne::plan {

// Any number of changes, made in one pass over the list by apply(). Until then the list stays as it
// was, and so do its numbers, by which places are given. What is put in gets a number, too, behind
// those of the list in the order of the calls: what is put in may name both by their numbers.
class ProgramEdit {
 public:
  // Between this and apply() the Program's list may not get longer or shorter; what its
  // instructions say may change.
  explicit ProgramEdit(Program& program);

  // Before the `place`-th instruction of the list, or at the end where `place` is their count.
  // Several at one place stand in the order of the calls. Returns its number.
  int insert_before(int place, Instruction instruction);
  // Behind the `place`-th, and behind what was put there earlier; before what is put before the
  // next one.
  int insert_after(int place, Instruction instruction);
  // Takes an instruction of the list out. Who names it has to be taken out, too, or to name
  // another.
  void remove(int number);

  // Makes the changes, once. Returns the place in the new list by number; -1 = taken out. Throws
  // InternalError, with the Program as it was, where an instruction that stays names one that does
  // not, or none.
  std::vector<int> apply();

 private:
  struct Insertion {
    int gap = 0;          // before this instruction of the list
    bool before = false;  // it belongs to the one behind the gap
    int number = 0;
  };
  int insert(int gap, bool before, Instruction instruction);
  void check_names(const std::vector<int>& place_of) const;

  Program& program_;
  int count_ = 0;  // instructions of the list
  std::vector<Insertion> insertions_;
  std::vector<Instruction> inserted_;  // by number, from count_ on
  std::vector<bool> removed_;
  bool applied_ = false;
};

}  // namespace garonne::plan
