// Steps from which something is missing, or in which it comes too late, though every buffer is
// there when it is read.
#include "plan/program/whole_step_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plan/program/content_check.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/program_edit.hpp"
#include "plan/program/program_mutants.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/pipelines.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::plan::test {
namespace {

std::string refusal(const std::function<void()>& check) {
  try {
    check();
    return "";
  } catch (const ReplayError& error) {
    return error.what();
  }
}

// By the whole step alone, with the model that it is of and with the one that it implies: replay
// has nothing against it.
void expect_refused(const Program& program, const ModelGraph& graph, const std::string& reason) {
  EXPECT_NO_THROW(replay(program));
  for (const ModelGraph& model : {graph, implied_model(program)}) {
    const std::string found = refusal([&] { check_whole_step(program, model); });
    EXPECT_NE(found.find(reason), std::string::npos) << found;
    EXPECT_NE(refusal([&] { check_contents(program, model); }), "");
  }
}

bool is(const Instruction& instruction, Operation operation) {
  return instruction.operation == operation;
}

std::size_t first_of(const Program& program, Operation operation) {
  const auto& all = program.instructions;
  return static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(),
                   [&](const Instruction& one) { return is(one, operation); }) -
      all.begin());
}

std::size_t last_of(const Program& program, Operation operation) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (is(program.instructions[i], operation)) last = i;
  }
  return last;
}

Program step_of(const ModelGraph& graph, int micro_batches) {
  return make_training_program(graph, step_shape(micro_batches, 1, 1000),
                               same_for_all(schedule_of(graph, "keep-all"), micro_batches));
}

// Ranks of one data group.
std::vector<Program> data_ranks(const ModelGraph& graph, int ranks, int zero) {
  StepShape step = step_shape(2, ranks, 1000);
  step.zero = zero;
  const Program program =
      make_training_program(graph, step, same_for_all(schedule_of(graph, "keep-all"), 2));
  std::vector<Program> programs;
  for (int rank = 0; rank < ranks; ++rank) {
    RankPlace place;
    place.rank = rank;
    place.coordinates = {rank, 0, 0};
    place.data_group = step.data_group;
    programs.push_back(program_of_rank(program, graph, place));
  }
  return programs;
}

TEST(WholeStep, SquaresAreOfCompleteGradients) {
  const ModelGraph graph = splitting_chain(6);
  Program program = step_of(graph, 2);
  // Sums, norm and updates stay in their order; the last backward of weights comes behind the sums.
  const std::size_t pass = last_of(program, Operation::BackwardWeight);
  mutate(program, {MutantKind::Moved, pass, static_cast<int>(first_of(program, Operation::Norm))});
  expect_refused(program, graph, "contributions");
}

TEST(WholeStep, PassesReadTheParametersOfTheStepBefore) {
  const ModelGraph graph = splitting_chain(6);
  Program program = step_of(graph, 1);
  const auto pass = static_cast<int>(last_of(program, Operation::BackwardInput));
  for (std::size_t update = first_of(program, Operation::Update);
       update <= last_of(program, Operation::Update); ++update)
    mutate(program, {MutantKind::Moved, update, pass});
  const std::string found = refusal([&] { check_whole_step(program, graph); });
  EXPECT_NE(found.find("which is updated"), std::string::npos) << found;
}

TEST(WholeStep, EveryLossIsInTheSums) {
  const ModelGraph graph = splitting_chain(4);
  Program program = step_of(graph, 2);
  mutate(program, {MutantKind::Deleted, last_of(program, Operation::EmitLoss)});
  expect_refused(program, graph, "1 of 2 losses");
  Program late = step_of(graph, 2);
  mutate(late, {MutantKind::Moved, first_of(late, Operation::EmitLoss),
                static_cast<int>(last_of(late, Operation::EmitLoss))});
  const std::string found = refusal([&] { check_whole_step(late, graph); });
  EXPECT_NE(found.find("another order than theirs"), std::string::npos) << found;
}

TEST(WholeStep, NoMicroBatchIsLeftOut) {
  const ModelGraph graph = splitting_chain(4);
  Program program = step_of(graph, 2);
  ProgramEdit edit(program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.micro_batch == 1) edit.remove(static_cast<int>(i));
  }
  edit.apply();
  expect_refused(program, graph, "micro-batch 1 goes through 0");
}

TEST(WholeStep, EveryParameterIsTrained) {
  const ModelGraph graph = splitting_chain(4);
  Program program = step_of(graph, 1);
  // The last piece, from its table and from what sums and updates.
  const int last = static_cast<int>(program.pieces.size()) - 1;
  program.pieces.pop_back();
  for (Instruction& instruction : program.instructions)
    std::erase(instruction.arguments.pieces, last);
  const std::string found = refusal([&] { check_whole_step(program, graph); });
  EXPECT_NE(found.find("0 elements of"), std::string::npos) << found;
}

// On all ranks at once, so that those that meet still meet.
TEST(RankSums, AreThoseOfTheGrid) {
  const ModelGraph graph = splitting_chain(4);
  const GridShape grid{2, 1, 1};
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    const std::vector<Program> programs = data_ranks(graph, 2, zero);
    ASSERT_NO_THROW(replay_together(programs));
    ASSERT_NO_THROW(check_trained_together(programs));
    for (const Program& program : programs) {
      ASSERT_NO_THROW(check_rank_sums(program, grid));
      EXPECT_THROW(check_rank_sums(program, {1, 1, 1}), ReplayError);
    }
    int deleted = 0;
    for (std::size_t i = 0; i < programs[0].instructions.size(); ++i) {
      const Instruction& sum = programs[0].instructions[i];
      if (!is(sum, Operation::AllReduce) && !is(sum, Operation::ReduceScatter)) continue;
      Program mutant = programs[0];
      mutate(mutant, {MutantKind::Deleted, i});
      const bool refused = refusal([&] { replay(mutant); }) != "" ||
                           refusal([&] { check_rank_sums(mutant, grid); }) != "";
      EXPECT_TRUE(refused) << describe(sum);
      ++deleted;
    }
    EXPECT_GT(deleted, 1);
    Program mutant = programs[1];
    for (Instruction& one : mutant.instructions) one.arguments.drops_loss = true;
    EXPECT_THROW(check_rank_sums(mutant, grid), ReplayError);
  }
}

TEST(RankSums, SquaresAreCountedOnceAndAllIsTrained) {
  const ModelGraph graph = splitting_chain(4);
  for (const int zero : {0, 1, 3}) {
    SCOPED_TRACE(zero);
    const std::vector<Program> programs = data_ranks(graph, 2, zero);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (std::size_t k = 0; k < programs[rank].pieces.size(); ++k) {
        std::vector<Program> mutants = programs;
        Piece& piece = mutants[rank].pieces[k];
        piece.counted = !piece.counted;
        EXPECT_THROW(check_trained_together(mutants), ReplayError) << rank << " " << k;
        mutants = programs;
        mutants[rank].pieces.erase(mutants[rank].pieces.begin() + static_cast<std::ptrdiff_t>(k));
        EXPECT_THROW(check_trained_together(mutants), ReplayError) << rank << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace garonne::plan::test
