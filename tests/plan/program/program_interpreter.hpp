// Carries Programs out on contents: every element of every buffer is a hash of how it came about.
// What nobody has written, and what was freed, poisons whatever is made from it. Slow and obvious;
// shares nothing with replay and the checks, which are judged by it.
//
// It goes by what the executor goes by: the roles of an instruction, not its reads and writes. The
// same hash stands for the same bits: a node run again makes what it made before, and a + b is
// b + a, but (a + b) + c is not a + (b + c), so the order of a sum of three shows. Nought is
// neutral. Sums over ranks are taken in rank order, element by element.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan::test {

struct RankProgram {
  const ModelGraph* graph = nullptr;  // of the rank's stage
  const Program* program = nullptr;
};

// When an instruction on another lane than Compute reads what it reads and writes what it writes,
// between its issue and the end of its Wait.
enum class LaneTiming {
  Early,   // at once, or as soon as its partners have come
  Late,    // when nobody can go on without it
  Random,  // anywhere in between
};

struct Outcome {
  // Why the step cannot be carried out: an access to what is not there or was given back, a wait
  // without end, work that is under way when the step is over. Empty where it can.
  std::string failed;
  // Of each rank: what lasts to the next step, what was reported, all messages. Empty if it failed.
  std::vector<std::uint64_t> contents;
  bool poisoned = false;  // some of it is made from what nobody has written

  bool operator==(const Outcome&) const = default;
};

// The step of all ranks; `ranks[r]` is rank r's. The same for the same seed, which where lanes are
// late is the rank that is served first.
Outcome interpret(const std::vector<RankProgram>& ranks, LaneTiming timing, unsigned seed = 0);

}  // namespace garonne::plan::test
