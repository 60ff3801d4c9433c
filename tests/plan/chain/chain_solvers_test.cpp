// Solvers of chains against slow, obvious ones, over made-up chains of all families. The number of
// chains is GARONNE_RANDOM_CHAINS, or a few hundred.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "plan/chain/chain_lower_bound.hpp"
#include "plan/chain/chain_solver.hpp"
#include "plan/chain/random_chains.hpp"
#include "plan/chain/rotor_table.hpp"

namespace garonne::plan::test {
namespace {

int number_of_chains() {
  const char* given = std::getenv("GARONNE_RANDOM_CHAINS");
  return given == nullptr ? 300 : std::atoi(given);
}

std::int64_t between(std::int64_t low, std::int64_t high, double share) {
  return low + static_cast<std::int64_t>(share * static_cast<double>(high - low));
}

// solve_chain replays every answer and refuses one over its budget.
TEST(ChainSolvers, AnswerFromTheirMinimumOnAndNotBelow) {
  for (int n = 0; n < number_of_chains(); ++n) {
    const int family = n % chain_families;
    // Mostly small; every thirtieth is of a size that `best` does not search whole.
    const int blocks = n % 30 == 29 ? 17 + n % 23 : 1 + (n / chain_families) % 7;
    const Chain chain = random_chain(family, static_cast<std::uint64_t>(n), blocks, 3);
    SCOPED_TRACE(chain_family_name(family) + " " + std::to_string(n));
    const std::int64_t keep_all = keep_all_bytes(chain);
    double rotor_seconds = 0;
    for (const auto& solver : chain_solvers()) {
      SCOPED_TRACE(solver.name);
      if (!refusal_of(solver, chain).empty()) continue;  // moves things: copy_solvers_test.cpp
      const std::int64_t least = solver.minimum_budget(chain);
      try {
        solve_chain(chain, solver, least - 1, {});
        ADD_FAILURE() << "a budget below the minimum has an answer";
      } catch (const PlanError& error) {
        EXPECT_EQ(error.needed_bytes(), least);
      }
      EXPECT_FALSE(solver.solve(chain, least - 1, {}).operations);
      EXPECT_GE(least, chain_lower_bound_bytes(chain));
      for (const double share : {0.0, 0.3}) {
        const std::int64_t budget = between(least, std::max(least, keep_all), share);
        const ChainSchedule solved = solve_chain(chain, solver, budget, {}).schedule;
        EXPECT_LE(solved.peak_bytes, budget);
        EXPECT_LE(solved.lower_bound_seconds, solved.seconds);
        EXPECT_LE(chain_lower_bound_seconds(chain, budget), solved.seconds * (1 + 1e-9));
      }
      const std::int64_t tight =
          between(chain_solver("rotor").minimum_budget(chain), keep_all, 0.25);
      if (solver.name == "rotor")
        rotor_seconds = solve_chain(chain, solver, tight, {}).schedule.seconds;
      if (solver.name == "best") {
        EXPECT_LE(solve_chain(chain, solver, tight, {}).schedule.seconds,
                  rotor_seconds * (1 + 1e-12));
      }
    }
  }
}

TEST(Rotor, IsTheFastestPersistentSequenceAtEveryBudget) {
  for (int n = 0; n < number_of_chains(); ++n) {
    const int family = n % chain_families;
    const int blocks = 1 + (n / chain_families) % 6;
    const Chain chain =
        random_chain(family, static_cast<std::uint64_t>(n), blocks, blocks > 4 ? 2 : 3);
    SCOPED_TRACE(chain_family_name(family) + " " + std::to_string(n));
    const std::vector<Outcome> all = list_persistent(chain);
    const RotorTable table(chain, all.back().bytes + 10, {});
    EXPECT_EQ(table.slots(), 0);
    EXPECT_EQ(table.minimum_budget_bytes(), all.front().bytes);
    for (const auto& outcome : all) {
      for (const std::int64_t budget : {outcome.bytes - 1, outcome.bytes}) {
        const auto sequence = table.sequence(budget);
        const double expected = fastest(all, budget);
        ASSERT_EQ(sequence.has_value(), std::isfinite(expected));
        if (!sequence) continue;
        const ChainReplay replay = replay_chain(chain, *sequence);
        EXPECT_LE(replay.peak_bytes, budget);
        EXPECT_NEAR(replay.seconds, expected, 1e-9 * expected);
      }
    }
  }
}

TEST(Rotor, SlotsLoseNoMoreThanTheyPromise) {
  double worse = 0;
  for (int n = 0; n < number_of_chains(); ++n) {
    const int family = n % chain_families;
    const Chain chain = random_chain(family, static_cast<std::uint64_t>(n), 2 + n % 5, 2);
    SCOPED_TRACE(chain_family_name(family) + " " + std::to_string(n));
    const std::vector<Outcome> all = list_persistent(chain);
    const std::int64_t most = all.back().bytes + 10;
    for (const std::int64_t slots : {7, 40, 1000}) {
      RotorOptions options;
      options.slots = slots;
      const RotorTable table(chain, most, options);
      EXPECT_LE(table.slots(), slots);
      EXPECT_EQ(table.minimum_budget_bytes(), all.front().bytes);
      for (const auto& outcome : all) {
        const auto sequence = table.sequence(outcome.bytes);
        ASSERT_TRUE(sequence.has_value());
        const ChainReplay replay = replay_chain(chain, *sequence);
        EXPECT_LE(replay.peak_bytes, outcome.bytes);
        EXPECT_GE(replay.seconds, outcome.seconds * (1 - 1e-9));
        EXPECT_LE(replay.seconds,
                  fastest(all, outcome.bytes - table.loss_bound_bytes()) * (1 + 1e-5));
        worse += replay.seconds > outcome.seconds * (1 + 1e-5) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(worse, 0) << "rounding is never felt, so nothing is tested";
}

TEST(Best, ClosesTheGapToTheOptimumOfAllSequences) {
  double rotor_gap = 0;
  double best_gap = 0;
  int cases = 0;
  for (int n = 0; n < number_of_chains(); ++n) {
    const int family = n % chain_families;
    const Chain chain = random_chain(family, static_cast<std::uint64_t>(n), 4 + n % 2, 2);
    SCOPED_TRACE(chain_family_name(family) + " " + std::to_string(n));
    const std::int64_t least = chain_solver("rotor").minimum_budget(chain);
    const std::int64_t budget = between(least, keep_all_bytes(chain), 0.05 * (n % 7));
    const double optimum = fastest_of_all(chain, budget);
    const double rotor = solve_chain(chain, chain_solver("rotor"), budget, {}).schedule.seconds;
    const ChainSchedule best = solve_chain(chain, chain_solver("best"), budget, {}).schedule;
    EXPECT_GE(best.seconds, optimum * (1 - 1e-9));
    EXPECT_LE(best.lower_bound_seconds, optimum * (1 + 1e-9));
    EXPECT_LE(chain_lower_bound_seconds(chain, budget), optimum * (1 + 1e-9));
    if (optimum == 0) continue;
    rotor_gap += rotor / optimum - 1;
    best_gap += best.seconds / optimum - 1;
    ++cases;
  }
  RecordProperty("rotor_gap_percent", std::to_string(100 * rotor_gap / cases));
  RecordProperty("best_gap_percent", std::to_string(100 * best_gap / cases));
  std::printf("mean gap to the optimum over %d chains: rotor %.3f %%, best %.4f %%\n", cases,
              100 * rotor_gap / cases, 100 * best_gap / cases);
  EXPECT_GT(rotor_gap, 0);
  EXPECT_LE(best_gap, 0.5 * rotor_gap);
}

TEST(Best, MinimumIsThatOfAllSequences) {
  for (int n = 0; n < number_of_chains() / 2; ++n) {
    const int family = n % chain_families;
    const Chain chain = random_chain(family, static_cast<std::uint64_t>(n), 2 + n % 3, 2);
    SCOPED_TRACE(chain_family_name(family) + " " + std::to_string(n));
    EXPECT_EQ(chain_solver("best").minimum_budget(chain), leanest_of_all(chain));
  }
}

}  // namespace
}  // namespace garonne::plan::test
