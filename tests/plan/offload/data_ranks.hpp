// The ranks of a Program of data ranks, and what they come to.
#pragma once

#include <vector>

#include "plan/program/program_interpreter.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::plan::test {

inline std::vector<Program> ranks_of(const Program& program, const ModelGraph& graph,
                                     const StepShape& step) {
  std::vector<Program> programs;
  for (const int rank : step.data_group) {
    RankPlace place;
    place.rank = rank;
    place.coordinates = {rank, 0, 0};
    place.data_group = step.data_group;
    programs.push_back(program_of_rank(program, graph, place));
  }
  return programs;
}

inline Outcome outcome_of(const std::vector<Program>& programs, const ModelGraph& graph,
                          LaneTiming timing, unsigned seed = 0) {
  std::vector<RankProgram> ranks;
  for (const Program& program : programs) ranks.push_back({&graph, &program});
  return interpret(ranks, timing, seed);
}

}  // namespace garonne::plan::test
