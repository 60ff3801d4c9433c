// What each rank of a grid trains and counts of a stage's Program.
#include "plan/step/rank_program.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

struct Case {
  ModelGraph graph;
  StepShape step;
  Program program;
};

Case make_case(unsigned seed, int zero, int ranks) {
  Case made;
  made.graph = random_graph(seed);
  for (std::size_t p = 0; p < made.graph.parameters.size(); ++p) {
    made.graph.parameters[p].replicated = (p + seed) % 3 == 0;
    made.graph.parameters[p].counted = (p + seed) % 4 != 0;
  }
  made.step = step_shape(1, ranks, 3000);
  made.step.zero = zero;
  if (seed % 2 == 0) made.step.element_bytes = {2, 4, 4, 4};
  made.program = make_training_program(made.graph, made.step,
                                       same_for_all(schedule_of(made.graph, "keep-all"), 1));
  return made;
}

Program of_rank(const Case& given, int data, int tensor) {
  return program_of_rank(given.program, given.graph,
                         {7, {data, 0, tensor}, given.step.data_group, {}, {}, {}});
}

TEST(RankProgram, AllRanksTogetherTrainEverythingOnceAndCountIt) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    for (int zero = 0; zero <= 3; ++zero) {
      for (const int ranks : {1, 2, 3}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " ZeRO " + std::to_string(zero));
        const Case given = make_case(seed, zero, ranks);
        const bool shared = zero > 0 && ranks > 1;
        // By parameter: which elements are trained, and how often each is counted.
        std::map<int, std::map<std::int64_t, int>> trained;
        std::map<std::pair<int, int>, std::int64_t> counted;  // (parameter, tensor rank)
        for (int data = 0; data < ranks; ++data) {
          for (int tensor = 0; tensor < 2; ++tensor) {
            const Program program = of_rank(given, data, tensor);
            ASSERT_NO_THROW(replay(program));
            EXPECT_EQ(program.rank, 7);
            for (const Piece& piece : program.pieces) {
              if (piece.counted) counted[{piece.parameter, tensor}] += piece.gradient.elements;
              if (tensor > 0) continue;
              for (std::int64_t k = 0; k < piece.gradient.elements; ++k)
                ++trained[piece.parameter][piece.first + k];
            }
            for (const Instruction& instruction : program.instructions) {
              if (instruction.operation == Operation::SumSquares) {
                EXPECT_EQ(instruction.arguments.drops_loss, tensor > 0);
              }
            }
          }
        }
        for (std::size_t p = 0; p < given.graph.parameters.size(); ++p) {
          const ParameterSpec& spec = given.graph.parameters[p];
          const auto& elements = trained[static_cast<int>(p)];
          EXPECT_EQ(static_cast<std::int64_t>(elements.size()), spec.elements);
          for (const auto& [element, times] : elements) ASSERT_EQ(times, shared ? 1 : ranks);
          for (int tensor = 0; tensor < 2; ++tensor) {
            const bool here = spec.counted && (tensor == 0 || !spec.replicated);
            EXPECT_EQ((counted[{static_cast<int>(p), tensor}]), here ? spec.elements : 0);
          }
        }
      }
    }
  }
}

TEST(RankProgram, RanksOfAStageDifferInNothingElse) {
  for (int zero = 0; zero <= 3; ++zero) {
    const Case given = make_case(5, zero, 3);
    const std::string shared = program_hash(without_rank(given.program));
    std::set<std::string> hashes;
    for (int data = 0; data < 3; ++data) {
      const Program program = of_rank(given, data, data % 2);
      EXPECT_EQ(program_hash(without_rank(program)), shared);
      hashes.insert(program_hash(program));
    }
    EXPECT_GT(hashes.size(), 1U) << "ZeRO " << zero;
    // From whatever rank's Program, the same.
    EXPECT_EQ(program_hash(program_of_rank(of_rank(given, 2, 1), given.graph,
                                           {0, {1, 0, 0}, given.step.data_group, {}, {}, {}})),
              program_hash(of_rank(given, 1, 0)));
  }
}

}  // namespace
}  // namespace garonne::plan::test
