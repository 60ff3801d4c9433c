// A lane that is added here: Programs with work on it are proved, timed, saved and interpreted, and
// refused where a wait is missing, without a change elsewhere. tests/exec carries them out.
#include "plan/program/exchange_lane.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/pass_parts.hpp"
#include "plan/program/program_edit.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/spans.hpp"
#include "plan/step/tensor_cases.hpp"

namespace garonne::plan::test {
namespace {

TEST(ExchangeLane, HasANumberAndANameOfItsOwn) {
  ASSERT_EQ(lanes().size(), static_cast<std::size_t>(lane_count) + 1);
  ASSERT_LE(lanes().size(), static_cast<std::size_t>(most_lanes));
  std::set<std::string_view> names;
  for (std::size_t number = 0; number < lanes().size(); ++number) {
    EXPECT_EQ(lanes()[number].lane, static_cast<Lane>(number));
    names.insert(lanes()[number].name);
  }
  EXPECT_EQ(names.size(), lanes().size());
  EXPECT_EQ(to_string(exchange_lane), "exchange");
  EXPECT_THROW((void)to_string(static_cast<Lane>(lanes().size())), InternalError);
}

TEST(ExchangeLane, ProgramsAreProvedSavedAndMeanTheSame) {
  int exchanges = 0;
  for (const TensorCase& one : tensor_cases(6)) {
    SCOPED_TRACE(one.name);
    const Program blocking = make_training_program(one.graph, one.step, one.schedule);
    const Program beside = with_exchange_lane(blocking);
    const std::vector<Program> programs = of_ranks(one, beside);
    expect_proved(one, programs);
    EXPECT_EQ(replay(beside).peak_bytes, replay(blocking).peak_bytes);
    const nlohmann::json json = nlohmann::json(to_json(beside, {0}, {}));
    EXPECT_EQ(program_hash(program_from_json(json, "p.json")), program_hash(beside));
    const Outcome wanted = outcome_of(one, of_ranks(one, blocking), LaneTiming::Late);
    for (const LaneTiming timing : {LaneTiming::Early, LaneTiming::Late, LaneTiming::Random})
      EXPECT_EQ(outcome_of(one, programs, timing, 7), wanted);
    for (const Instruction& instruction : beside.instructions)
      exchanges += instruction.lane == exchange_lane;
  }
  EXPECT_GT(exchanges, 500);
}

// They do not queue with sums of gradients, and so take what they take where compute waits.
TEST(ExchangeLane, HasATimeOfItsOwn) {
  int faster = 0;
  for (const TensorCase& one : tensor_cases(6)) {
    SCOPED_TRACE(one.name);
    const Program blocking = make_training_program(one.graph, one.step, one.schedule);
    const auto seconds = [&](const Program& program) {
      return replay_together(of_ranks(one, program)).front().seconds;
    };
    const double apart = seconds(with_exchange_lane(blocking));
    const double queued = seconds(with_passes_beside_compute(blocking));
    EXPECT_DOUBLE_EQ(apart, seconds(blocking));
    EXPECT_LE(apart, queued);
    faster += apart < queued;
  }
  EXPECT_GT(faster, 0);
}

TEST(ExchangeLane, EveryWaitIsNeeded) {
  int dropped = 0;
  for (const bool apart : {false, true}) {
    const TensorCase one = chain_with_a_sum(apart);
    const Program program =
        with_exchange_lane(make_training_program(one.graph, one.step, one.schedule));
    ASSERT_EQ(refusal(one, program), "");
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const Instruction& wait = program.instructions[as_index(i)];
      if (wait.operation != Operation::Wait) continue;
      if (program.instructions[as_index(wait.completes)].lane != exchange_lane) continue;
      Program without = program;
      ProgramEdit edit(without);
      edit.remove(i);
      edit.apply();
      // What the wait freed, behind it.
      for (const int freed : wait.frees) without.instructions[as_index(i)].frees.push_back(freed);
      EXPECT_THROW(replay(without), ReplayError);
      try {
        check_order(without);
        ADD_FAILURE() << "accepted without instruction " << i;
      } catch (const ReplayError& error) {
        EXPECT_NE(std::string(error.what()).find("may be under way on the lane exchange"),
                  std::string::npos)
            << error.what();
      }
      // And it has to come before what it is for.
      Program late = program;
      std::swap(late.instructions[as_index(i)], late.instructions[as_index(i + 1)]);
      EXPECT_NE(refusal(one, late).find("while an asynchronous instruction"), std::string::npos);
      EXPECT_THROW(check_order(late), ReplayError);
      ++dropped;
    }
  }
  EXPECT_GE(dropped, 4);
}

// Cases whose gradients are sums over both groups.
std::vector<TensorCase> cases_with_two_sums() {
  std::vector<TensorCase> cases = tensor_cases(3);
  std::erase_if(cases, [](const TensorCase& one) { return one.step.data_group.size() < 2; });
  for (TensorCase& one : cases) {
    for (ParameterSpec& parameter : one.graph.parameters) parameter.sums_over_tensor = true;
  }
  return cases;
}

// A sum follows another one across lanes, and needs to.
TEST(ExchangeLane, EveryAfterIsNeeded) {
  int deleted = 0;
  int other_outcomes = 0;
  for (const TensorCase& one : cases_with_two_sums()) {
    SCOPED_TRACE(one.name);
    const Program behind_waits = make_training_program(one.graph, one.step, one.schedule);
    const Program program = with_sums_in_a_row(behind_waits);
    expect_proved(one, of_ranks(one, program));
    const nlohmann::json json = nlohmann::json(to_json(program, {0}, {}));
    EXPECT_EQ(program_hash(program_from_json(json, "p.json")), program_hash(program));
    const Outcome wanted = outcome_of(one, of_ranks(one, behind_waits), LaneTiming::Late);
    for (const LaneTiming timing : {LaneTiming::Early, LaneTiming::Late, LaneTiming::Random})
      EXPECT_EQ(outcome_of(one, of_ranks(one, program), timing, 7), wanted);
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.instructions[i].after.empty()) continue;
      EXPECT_EQ(program.instructions[i].lane, exchange_lane);
      Program without = program;
      without.instructions[i].after.clear();
      EXPECT_NE(refusal(one, without).find("while an asynchronous instruction"), std::string::npos);
      EXPECT_THROW(check_order(without), ReplayError);
      other_outcomes += outcome_of(one, of_ranks(one, without), LaneTiming::Late) != wanted;
      ++deleted;
    }
  }
  EXPECT_GT(deleted, 20);
  EXPECT_EQ(other_outcomes, deleted);
}

}  // namespace
}  // namespace garonne::plan::test
