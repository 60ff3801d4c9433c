// Steps whose updates take sums of whole parameters: on the device, with states on a tier below it,
// on the host, in shards and on tensor ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "plan/offload/host_update.hpp"
#include "plan/offload/tiered_case.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/program_mutants.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/rank_program.hpp"
#include "plan/step/tensor_cases.hpp"

namespace garonne::plan::test {
namespace {

// Equally many numbers of all parameters, or as many as they have rows and columns, and more that
// follow from these.
std::vector<TensorSums> rounds_of(unsigned seed) {
  if (seed % 2 == 0) return {{.numbers = 2}};
  return {{.numbers = 3, .sides = true}, {.numbers = 1}};
}

void expect_proved_alone(const Program& program, const ModelGraph& graph) {
  EXPECT_NO_THROW(replay(program));
  EXPECT_NO_THROW(prove(program, graph));
  EXPECT_NO_THROW(prove(program, implied_model(program)));
  const Program again = program_from_json(to_json(program, {0}, {}), "a copy");
  EXPECT_EQ(program_hash(again), program_hash(program));
}

int count_of(const Program& program, Operation operation) {
  return static_cast<int>(
      std::count_if(program.instructions.begin(), program.instructions.end(),
                    [&](const Instruction& one) { return one.operation == operation; }));
}

TEST(TensorSums, HaveOneInstructionAnUpdateAndStatesMoveWithThem) {
  int moved_cases = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const auto rounds = rounds_of(seed / 2);
    const TieredCase one = tiered_case(seed, Tier::Disk, 0, rounds);
    expect_proved_alone(one.program, one.graph);
    EXPECT_EQ(count_of(one.program, Operation::SumTensors),
              static_cast<int>(rounds.size()) * count_of(one.program, Operation::Update));
    const Outcome wanted = interpret({{&one.graph, &one.program}}, LaneTiming::Early);
    const std::vector<StateGroup> groups = state_groups(one.program, 0);
    ASSERT_FALSE(groups.empty());
    std::int64_t bytes = 0;
    for (const StateGroup& group : groups) {
      EXPECT_EQ(one.program.instructions[as_index(group.first)].operation, Operation::SumTensors);
      EXPECT_LT(group.first, group.update);
      bytes += group.bytes;
    }
    std::int64_t budget = replay(one.program).peak_bytes - bytes;
    std::optional<Program> moved;
    for (; !moved; budget += 1024)
      moved = with_states_below(one.program, groups, Tier::Disk, tier_links, budget);
    ++moved_cases;
    EXPECT_LT(moved->peak_bytes, replay(one.program).peak_bytes);
    expect_proved_alone(*moved, one.graph);
    for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random})
      EXPECT_EQ(interpret({{&one.graph, &*moved}}, timing, seed), wanted);
  }
  EXPECT_EQ(moved_cases, 20);
}

TEST(TensorSums, TheHostMakesThoseOfItsUpdatesItself) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const auto rounds = rounds_of(seed / 2);
    const TieredCase one = tiered_case(seed, Tier::Host, 0, rounds);
    const Outcome wanted = interpret({{&one.graph, &one.program}}, LaneTiming::Early);
    std::vector<StateGroup> groups = for_host(one.program, state_groups(one.program, 0));
    EXPECT_EQ(groups.size(), state_groups(one.program, 0).size());
    if (seed % 2 == 1) groups.resize((groups.size() + 1) / 2);
    for (const GradientCopies when : {GradientCopies::WhenComplete, GradientCopies::AtTheEnd}) {
      const Program moved = with_updates_on_host(one.program, groups, tier_links, 1e9, when);
      expect_proved_alone(moved, one.graph);
      EXPECT_EQ(count_of(moved, Operation::SumTensors),
                static_cast<int>(rounds.size()) * count_of(moved, Operation::Update));
      for (const LaneTiming timing : {LaneTiming::Late, LaneTiming::Early, LaneTiming::Random})
        EXPECT_EQ(interpret({{&one.graph, &moved}}, timing, seed), wanted);
    }
  }
}

// Where the ranks have parts of parameters, the host would sum those of this one alone.
TEST(TensorSums, ThatRanksAddUpStayOnTheDevice) {
  for (const int zero : {1, 2, 3}) {
    for (unsigned seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(seed);
      const TieredCase one = tiered_case(seed, Tier::Host, zero, rounds_of(seed));
      EXPECT_TRUE(for_host(one.program, state_groups(one.program, 0)).empty());
      std::vector<Program> ranks;
      for (int rank = 0; rank < 2; ++rank) {
        ranks.push_back(program_of_rank(one.program, one.graph,
                                        {rank, {rank, 0, 0}, one.step.data_group, {}, {}, {}}));
        expect_proved_alone(ranks.back(), one.graph);
        EXPECT_NO_THROW(check_rank_sums(ranks.back(), {2, 1, 1}));
        EXPECT_THROW(check_rank_sums(ranks.back(), {1, 1, 1}), ReplayError);
      }
      EXPECT_NO_THROW(replay_together(ranks));
      EXPECT_NO_THROW(check_trained_together(ranks));
      if (zero != 1) continue;
      // On the host all the same.
      EXPECT_THROW(prove(with_updates_on_host(ranks[0], state_groups(ranks[0], 0), tier_links, 1e9,
                                              GradientCopies::AtTheEnd),
                         one.graph),
                   ReplayError);
    }
  }
}

TEST(TensorSums, OfTensorRanksAreOfAllAndOfEachElementOnce) {
  int deleted = 0;
  unsigned number = 0;
  for (TensorCase one : tensor_cases(3)) {
    SCOPED_TRACE(one.name);
    one.step.tensor_sums = rounds_of(number++);
    for (std::size_t p = 1; p < one.graph.parameters.size(); p += 2)
      one.graph.parameters[p].replicated = true;
    const Program program = make_training_program(one.graph, one.step, one.schedule);
    const std::vector<Program> programs = of_ranks(one, program);
    expect_proved(one, programs);
    EXPECT_EQ(outcome_of(one, programs, LaneTiming::Late),
              outcome_of(one, programs, LaneTiming::Early));
    const Program& last = programs.back();
    for (std::size_t i = 0; i < last.instructions.size(); ++i) {
      const Instruction& sum = last.instructions[i];
      const bool of_tensors = sum.operation == Operation::AllReduce &&
                              sum.node.ends_with(".sums") &&
                              sum.channel->group == GroupAxis::Tensor;
      if (!of_tensors) continue;
      Program mutant = last;
      mutate(mutant, {MutantKind::Deleted, i});
      EXPECT_NE(refusal(one, mutant), "") << describe(sum);
      ++deleted;
    }
    // Twice what all ranks have alike.
    for (std::size_t i = 0; i < last.instructions.size(); ++i) {
      if (last.instructions[i].operation != Operation::Update) continue;
      Program twice = last;
      bool more = false;
      for (Instruction& other : twice.instructions) {
        if (other.operation != Operation::SumTensors ||
            other.bucket != last.instructions[i].bucket ||
            other.arguments.pieces == last.instructions[i].arguments.pieces)
          continue;
        other.arguments.pieces = last.instructions[i].arguments.pieces;
        more = true;
      }
      if (more) {
        EXPECT_NE(refusal(one, twice), "");
      }
    }
  }
  EXPECT_GT(deleted, 10);
}

}  // namespace
}  // namespace garonne::plan::test
