// Whatever is changed about what an instruction does with its buffers is refused by replay.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

Program program_of(unsigned seed, int zero) {
  const ModelGraph graph = random_graph(seed);
  StepShape step = step_shape(2, zero > 0 ? 2 : 1, 1000);
  step.zero = zero;
  if (seed % 3 == 0) step.element_bytes = {2, 4, 4, 4};
  return make_training_program(graph, step, same_for_all(schedule_of(graph, "keep-all"), 2));
}

// Whether replay refuses it, with the part in its message.
void expect_illegal(const Program& program, const std::string& part) {
  try {
    replay(program);
  } catch (const ReplayError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    return;
  }
  ADD_FAILURE() << "accepted; expected: " << part;
}

// Each Program there is, and each instruction of an operation in it.
void for_each(Operation operation,
              const std::function<void(Program&, Instruction&)>& change_and_check) {
  int found = 0;
  for (unsigned seed = 1; seed <= 6; ++seed) {
    for (int zero = 0; zero <= 3; ++zero) {
      const Program program = program_of(seed, zero);
      ASSERT_NO_THROW(replay(program));
      for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        if (program.instructions[i].operation != operation) continue;
        ++found;
        SCOPED_TRACE("seed " + std::to_string(seed) + " ZeRO " + std::to_string(zero) + " " +
                     std::to_string(i));
        Program changed = program;
        change_and_check(changed, changed.instructions[i]);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(found, 0);
}

TEST(ReplayRoles, EveryPieceIsUpdatedAndSummedOnce) {
  for (const Operation operation : {Operation::Update, Operation::SumSquares}) {
    for_each(operation, [](Program& program, Instruction& instruction) {
      std::vector<int>& pieces = instruction.arguments.pieces;
      if (pieces.empty()) return;
      pieces.push_back(pieces.front());
      expect_illegal(program, "times");
      pieces.resize(pieces.size() - 2);
      if (!pieces.empty()) pieces.front() = static_cast<int>(program.pieces.size()) - 1;
      expect_illegal(program, "");
    });
  }
}

TEST(ReplayRoles, APieceTakesItsOwnGradient) {
  for_each(Operation::SumSquares, [](Program& program, Instruction&) {
    for (std::size_t k = 0; k < program.pieces.size(); ++k) {
      Program moved = program;
      Piece& piece = moved.pieces[k];
      piece.gradient.offset += 1;
      expect_illegal(moved, "");
      moved = program;
      moved.pieces[k].first += 1;
      expect_illegal(moved, "something else for the gradient");
      moved = program;
      moved.pieces[k].parameter += 1;
      expect_illegal(moved, "something else for the gradient");
      for (std::size_t other = 0; other < k; ++other) {
        moved = program;
        std::swap(moved.pieces[k].gradient, moved.pieces[other].gradient);
        expect_illegal(moved, "");
      }
    }
  });
}

TEST(ReplayRoles, WhatIsTrainedIsTrainedByOnePiece) {
  for_each(Operation::SumSquares, [](Program& program, Instruction&) {
    for (std::size_t k = 1; k < program.pieces.size(); ++k) {
      Program shared = program;
      if (shared.pieces[k].trained.elements != shared.pieces[0].trained.elements) continue;
      shared.pieces[k].trained = shared.pieces[0].trained;
      expect_illegal(shared, "two pieces have the same elements");
    }
    Program beyond = program;
    beyond.pieces[0].trained.offset += std::int64_t{1} << 40;
    expect_illegal(beyond, "takes elements");
    Program longer = program;
    longer.pieces[0].trained.elements += 1;
    expect_illegal(longer, "");
    Program passing = program;
    passing.pieces[0].trained = passing.pieces[0].gradient;
    expect_illegal(passing, "does not last");
  });
}

TEST(ReplayRoles, AShardKeepsWhatItsPiecesAreOf) {
  for_each(Operation::KeepShard, [](Program& program, Instruction& instruction) {
    const Range part = instruction.arguments.part;
    // The shard beside it; where padding alone is there, pieces find nothing.
    instruction.arguments.part.offset += part.elements;
    expect_illegal(program, "");
    instruction.arguments.part = part;
    instruction.arguments.part.elements -= 1;
    expect_illegal(program, "another number of elements");
  });
}

// All but one pair, of which only the node knows which it does.
TEST(ReplayRoles, NoOtherPlacementWillDo) {
  int sums = 0;
  for (const Operation operation : {Operation::Backward, Operation::BackwardInput}) {
    for_each(operation, [&](Program& program, Instruction& instruction) {
      for (Placement& placement : instruction.arguments.placements) {
        const Placement right = placement;
        for (int other = 0; other < placement_count; ++other) {
          placement = static_cast<Placement>(other);
          const bool sum = right == Placement::AddExisting || right == Placement::SumWithAlias;
          const bool another_sum =
              placement == Placement::AddExisting || placement == Placement::SumWithAlias;
          if (placement == right) continue;
          if (sum && another_sum) {
            ++sums;
            continue;
          }
          expect_illegal(program, "is ");
        }
        placement = right;
      }
      instruction.arguments.placements.emplace_back();
      expect_illegal(program, "every input");
    });
  }
  EXPECT_GT(sums, 0);
}

TEST(ReplayRoles, ParametersAreReadInsideTheirBuffers) {
  for_each(Operation::ForwardKeep, [](Program& program, Instruction& instruction) {
    for (Range& range : instruction.arguments.parameters) {
      const Range right = range;
      range.offset = program.buffers[as_index(range.buffer)].elements - range.elements + 1;
      expect_illegal(program, "takes elements");
      range.offset = -1;
      expect_illegal(program, "takes elements");
      range = right;
      range.elements = INT64_MAX;
      expect_illegal(program, "takes elements");
      range = right;
      range.buffer = static_cast<int>(program.buffers.size());
      expect_illegal(program, "no buffer has the id");
      range = right;
    }
  });
}

TEST(ReplayRoles, InputsThatAreNone) {
  for (const Operation operation :
       {Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather, Operation::KeepShard,
        Operation::EmitLoss, Operation::Norm, Operation::Update, Operation::Report}) {
    for_each(operation, [&](Program& program, Instruction& instruction) {
      std::vector<int>& inputs = instruction.arguments.inputs;
      if (inputs.empty()) return;
      const std::vector<int> right = inputs;
      for (const int id : {-1, static_cast<int>(program.buffers.size()), 1 << 30}) {
        inputs[0] = id;
        expect_illegal(program, "");
      }
      inputs = right;
    });
  }
  for_each(Operation::AllGather, [](Program& program, Instruction& instruction) {
    instruction.arguments.inputs.clear();
    expect_illegal(program, "gathers nothing");
  });
}

TEST(ReplayRoles, PrivateSlotsHaveBuffers) {
  int slots = 0;
  for (const Operation operation : {Operation::ForwardKeep, Operation::Backward}) {
    for_each(operation, [&](Program& program, Instruction& instruction) {
      std::vector<int>& record = instruction.arguments.record;
      if (record.empty()) return;
      ++slots;
      const int right = std::exchange(record.back(), -1);
      expect_illegal(program, "private slot without a buffer");
      record.back() = right;
    });
  }
  EXPECT_GT(slots, 4);
}

TEST(ReplayRoles, PaddingIsZeroedWhereItIsMade) {
  Program program = program_of(2, 1);
  for (Instruction& instruction : program.instructions) {
    if (instruction.arguments.zeroed.empty()) continue;
    const int buffer = instruction.arguments.zeroed[0].buffer;
    for (Instruction& later : program.instructions) {
      const auto& targets = later.arguments.parameter_gradients;
      if (targets.empty() || !targets[0].accumulate || targets[0].range.buffer != buffer) continue;
      later.arguments.zeroed = instruction.arguments.zeroed;
      expect_illegal(program, "zeroes what is there");
      return;
    }
  }
  FAIL() << "nothing has padding";
}

}  // namespace
}  // namespace garonne::plan::test
