#include "plan/step/tensor_cases.hpp"

#include <gtest/gtest.h>

#include "plan/program/content_check.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/program_meaning.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/rank_program.hpp"
#include "plan/step/tensor_graphs.hpp"

namespace garonne::plan::test {

std::vector<TensorCase> tensor_cases(unsigned seeds) {
  std::vector<TensorCase> all;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    const ModelGraph graph = with_collectives(random_graph(seed), seed);
    for (const auto& [policy, schedule] : policy_schedules(graph)) {
      StepShape step = tensor_step_shape(2, 1 + static_cast<int>(seed % 2), 1000);
      step.zero = static_cast<int>(seed % 4);
      all.push_back(
          {"seed " + std::to_string(seed) + ", " + policy, graph, step, same_for_all(schedule, 2)});
    }
  }
  return all;
}

std::vector<Program> of_ranks(const TensorCase& one, const Program& program) {
  std::vector<Program> programs;
  const int data_ranks = static_cast<int>(one.step.data_group.size());
  for (int rank = 0; rank < 2 * data_ranks; ++rank) {
    RankPlace place;
    place.rank = rank;
    place.coordinates = {rank / 2, 0, rank % 2};
    for (int data = 0; data < data_ranks; ++data) place.data_group.push_back(2 * data + rank % 2);
    place.tensor_group = {rank / 2 * 2, rank / 2 * 2 + 1};
    programs.push_back(program_of_rank(program, one.graph, place));
  }
  return programs;
}

Outcome outcome_of(const TensorCase& one, const std::vector<Program>& programs, LaneTiming timing,
                   unsigned seed) {
  std::vector<RankProgram> ranks;
  for (const Program& program : programs) ranks.push_back({&one.graph, &program});
  return interpret(ranks, timing, seed);
}

void expect_proved(const TensorCase& one, const std::vector<Program>& programs) {
  for (const Program& program : programs) {
    EXPECT_NO_THROW(check_order(program));
    EXPECT_NO_THROW(check_against_model(program, one.graph));
    EXPECT_NO_THROW(check_contents(program, one.graph));
    const ModelGraph implied = implied_model(program);
    EXPECT_NO_THROW(check_against_model(program, implied));
    EXPECT_NO_THROW(check_contents(program, implied));
  }
  EXPECT_NO_THROW(replay_together(programs));
}

TensorCase chain_with_a_sum(bool apart) {
  TensorCase one;
  one.graph = chain(2, 2);
  NodeSpec& node = one.graph.nodes[1];
  // Its parameter goes, and those behind it move up.
  node.parameters.clear();
  one.graph.parameters.pop_back();
  for (NodeSpec& other : one.graph.nodes) {
    for (int& parameter : other.parameters) parameter -= parameter > 0 ? 1 : 0;
  }
  node.pinned_values.clear();
  node.private_slot_bytes.clear();
  node.forward_collective = {"all-reduce", 4096, apart ? 8192 : 0, 2048};
  node.backward_collective = {"reduce-scatter", 4096, 4096, 2048};
  node.forward.transient_bytes = node.forward_keep.transient_bytes = apart ? 12288 : 2048;
  node.backward.transient_bytes = 4096;
  one.step = tensor_step_shape(1, 1, 1000);
  one.schedule = same_for_all(schedule_of(one.graph, "full"), 1);
  return one;
}

std::string refusal(const TensorCase& one, const Program& program) {
  try {
    replay(program);
    check_order(program);
    check_against_model(program, one.graph);
    check_contents(program, one.graph);
  } catch (const ReplayError& error) {
    return error.what();
  }
  return "";
}

}  // namespace garonne::plan::test
