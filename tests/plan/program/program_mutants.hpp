// Programs with one thing wrong.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "plan/program/program.hpp"

namespace garonne::plan::test {

enum class MutantKind {
  WaitDeleted,   // what it frees is freed by the next instruction
  PartDeleted,   // of a pass that is divided; likewise
  AfterDeleted,  // one entry of it
  FreeEarlier,   // by the instruction before
  Swapped,       // two buffers of one size, in one instruction
  SwappedOn,     // and in all that follow
  Deleted,       // any other instruction, with the wait for it; likewise
  Moved,         // to another place
  OfOtherStep,   // of a rotated step: an instruction that is left is not, or the reverse
};
inline constexpr int mutant_kinds = 9;
std::string_view to_string(MutantKind kind);

struct Mutation {
  MutantKind kind = MutantKind::WaitDeleted;
  std::size_t instruction = 0;
  int a =
      -1;  // of `after` the entry, of frees the buffer, of swaps both buffers, of moves where to
  int b = -1;
  bool frees = false;  // of a swap: what is freed is swapped, too
};

// Every wait, every part of a divided pass, every other instruction, every entry of `after`, every
// free but those of the first instruction; of a rotated step every instruction and its wait.
std::vector<Mutation> single_mutations(const Program& program);
// Up to `count` swaps of either kind, each of which changes what some instruction says.
std::vector<Mutation> random_swaps(const Program& program, int count, std::mt19937& random);
// `count` of any instruction to any other place.
std::vector<Mutation> random_moves(const Program& program, int count, std::mt19937& random);

void mutate(Program& program, const Mutation& mutation);
// For people: what was changed where.
std::string describe(const Program& program, const Mutation& mutation);

// Puts one buffer in the place of another and the reverse, in all that the instruction reads,
// writes and does; whether that changed anything.
bool swap_buffers(Instruction& instruction, int a, int b);
// What is read and written is a set: its order in the list is nothing.
bool says_the_same(const Instruction& a, const Instruction& b);

}  // namespace garonne::plan::test
