// Solvers that move things below against the fastest of all sequences, over tables and made-up
// chains. The number of chains is GARONNE_RANDOM_CHAINS, or a few hundred.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "plan/chain/chain_bandwidth_bound.hpp"
#include "plan/chain/chain_solver.hpp"
#include "plan/chain/copied_chains.hpp"
#include "plan/chain/copy_search.hpp"
#include "plan/chain/random_chains.hpp"

namespace garonne::plan::test {
namespace {

int number_of_copied_chains() {
  const char* given = std::getenv("GARONNE_RANDOM_CHAINS");
  return given == nullptr ? 210 : std::atoi(given);
}

const std::vector<std::string>& movers() {
  static const std::vector<std::string> names = {"offload-greedy", "offload-greedy-star", "pofo",
                                                 "best"};
  return names;
}

// How often each solver is as fast as anything can be, how often it has no plan where there is one,
// and how much slower it is where it has.
class Score {
 public:
  void note(const std::string& solver, double seconds, double optimum) {
    Row& row = rows_[solver];
    ++row.cells;
    if (std::isinf(seconds)) {
      ++row.none;
    } else {
      row.equal += seconds <= optimum * (1 + 1e-9) ? 1 : 0;
      row.gap += optimum > 0 ? seconds / optimum - 1 : 0;
    }
  }
  double share(const std::string& solver) const {
    const Row& row = rows_.at(solver);
    return static_cast<double>(row.equal) / row.cells;
  }
  void print(const std::string& title) const {
    std::printf("%s\n", title.c_str());
    for (const auto& [solver, row] : rows_) {
      std::printf("  %-20s %5d cells: %5.1f %% optimal, %4.1f %% without a plan, others %+.2f %%\n",
                  solver.c_str(), row.cells, 100.0 * row.equal / row.cells,
                  100.0 * row.none / row.cells,
                  row.cells == row.none ? 0.0 : 100 * row.gap / (row.cells - row.none));
    }
  }

 private:
  struct Row {
    int cells = 0;
    int equal = 0;
    int none = 0;
    double gap = 0;
  };
  std::map<std::string, Row> rows_;
};

// Infinity below the solver's minimum.
double seconds_of(const Chain& chain, const std::string& name, std::int64_t budget) {
  const ChainSolver& solver = chain_solver(name);
  if (budget < solver.minimum_budget(chain)) return no_plan;
  const ChainSchedule schedule = solve_chain(chain, solver, budget, {}).schedule;
  EXPECT_LE(schedule.lower_bound_seconds, schedule.seconds);
  return schedule.seconds;
}

TEST(CopySolvers, AreNeverFasterThanTheTables) {
  Score score;
  for (const CopyTableRow& row : copy_table()) {
    if (row.mode != CopyTableMode::Both) continue;
    for (std::size_t k = 0; k < row.seconds.size(); ++k) {
      const std::int64_t budget = row.first_budget + static_cast<std::int64_t>(k);
      EXPECT_LE(chain_bandwidth_bound_seconds(row.chain, budget), row.seconds[k]);
      for (const std::string& name : movers()) {
        SCOPED_TRACE(row.name + " " + name + " at " + std::to_string(budget));
        const double seconds = seconds_of(row.chain, name, budget);
        EXPECT_GE(seconds, row.seconds[k] * (1 - 1e-9));
        score.note(name, seconds, row.seconds[k]);
      }
    }
  }
  score.print("cells of the tables");
  EXPECT_GE(score.share("best"), 0.9);
  EXPECT_GT(score.share("pofo"), 0.5);
}

TEST(CopySolvers, BoundAndAnswersOfRandomChains) {
  Score score;
  double tight = 0;
  double worst = 1;
  int cases = 0;
  for (int n = 0; n < number_of_copied_chains(); ++n) {
    const auto seed = static_cast<std::uint64_t>(n);
    // Of weights there are many states, and of four blocks.
    const bool weights = n % 4 == 3;
    const int blocks = weights ? 2 : 2 + n / 4 % (n % 8 == 0 ? 3 : 2);
    const Chain chain =
        random_copied_chain(seed, blocks, weights || blocks == 4 ? 1 : 1 + n / 8 % 2);
    SCOPED_TRACE(chain_family_name(n % chain_families) + " " + std::to_string(n));
    const std::int64_t least = chain_solver("best").minimum_budget(chain);
    const std::int64_t most = std::max(least, keep_all_bytes(chain));
    const std::int64_t budget =
        least + static_cast<std::int64_t>(0.15 * (n % 6) * static_cast<double>(most - least));
    CopySearchOptions options;
    options.most_states = 60'000;
    const CopySearchAnswer found = search_copies(chain, budget, options);
    if (!found.complete) continue;
    ASSERT_TRUE(found.operations.has_value());
    const double optimum = replay_chain(chain, *found.operations).seconds;
    const double bound = chain_bandwidth_bound_seconds(chain, budget);
    EXPECT_LE(bound, optimum * (1 + 1e-12));
    tight += bound >= optimum * (1 - 1e-9) ? 1 : 0;
    if (bound > 0) worst = std::max(worst, optimum / bound);
    ++cases;
    if (n % 7 != 0) continue;  // solvers take longer
    for (const std::string& name : movers()) {
      SCOPED_TRACE(name);
      const double seconds = seconds_of(chain, name, budget);
      EXPECT_GE(seconds, optimum * (1 - 1e-9));
      score.note(name, seconds, optimum);
    }
  }
  EXPECT_GE(cases, number_of_copied_chains() * 2 / 3);
  score.print("random chains");
  std::printf("  bound of %d: tight on %.1f %%, worst ratio %.2f\n", cases, 100 * tight / cases,
              worst);
  EXPECT_GT(tight, 0);
}

// solve_chain replays every answer and refuses one over its budget.
TEST(CopySolvers, AnswerFromTheirMinimumOnAndNotBelow) {
  for (int n = 0; n < number_of_copied_chains() / 6; ++n) {
    const auto seed = static_cast<std::uint64_t>(n) + 1000;
    const Chain chain = random_copied_chain(seed, n % 20 == 19 ? 20 : 1 + n % 11, 3);
    SCOPED_TRACE(n);
    for (const ChainSolver& solver : chain_solvers()) {
      if (solver.name == "best" && n % 4 > 0) continue;  // takes longest
      SCOPED_TRACE(solver.name);
      const std::int64_t least = solver.minimum_budget(chain);
      EXPECT_THROW(solve_chain(chain, solver, least - 1, {}), PlanError);
      for (const double share : {0.0, 0.4, 1.0}) {
        const auto more =
            share * static_cast<double>(std::max<std::int64_t>(0, keep_all_bytes(chain) - least));
        const std::int64_t budget = least + static_cast<std::int64_t>(std::ceil(more));
        const ChainSchedule solved = solve_chain(chain, solver, budget, {}).schedule;
        EXPECT_LE(solved.peak_bytes, budget);
        EXPECT_LE(solved.lower_bound_seconds, solved.seconds);
        if (share == 1.0 && solver.refusal) {
          EXPECT_LE(solved.seconds, solved.keep_all.seconds * (1 + 1e-9));
        }
      }
    }
  }
}

TEST(CopySolvers, RefuseChainsWithoutBandwidths) {
  const Chain chain = random_chain(1, 3, 4, 2);
  for (const std::string& name : movers()) {
    if (name == "best") continue;
    try {
      solve_chain(chain, chain_solver(name), 1'000'000'000, {});
      ADD_FAILURE() << name << " moves things over no link";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("out_bytes_per_second"), std::string::npos);
    }
  }
}

// With a fast link what is over a budget costs nothing, with a slow one no more than without.
TEST(CopySolvers, LimitsOfTheLinks) {
  for (int n = 0; n < 18; ++n) {
    const Chain chain = random_chain(n % chain_families, static_cast<std::uint64_t>(n), 3, 1);
    SCOPED_TRACE(n);
    const std::int64_t least = chain_solver("best").minimum_budget(chain);
    const std::int64_t budget = (least + keep_all_bytes(chain)) / 2;
    if (budget < least) continue;
    const double without = seconds_of(chain, "best", budget);
    const double slow = seconds_of(with_links(chain, 1e-6, 1e-6), "best", budget);
    EXPECT_LE(slow, without * (1 + 1e-9));
    const double fast = seconds_of(with_links(chain, 1e18, 1e18), "best", budget);
    EXPECT_LE(fast, slow * (1 + 1e-9));
  }
}

bool is_of_copies(const ChainOperation& operation) {
  return operation.kind == ChainOperationKind::CopyOut ||
         operation.kind == ChainOperationKind::WaitOut ||
         operation.kind == ChainOperationKind::CopyIn ||
         operation.kind == ChainOperationKind::WaitIn;
}

TEST(CopySolvers, DamagedAnswersAreRefused) {
  int taken_out = 0;
  int exchanged = 0;
  int refused = 0;
  for (int n = 0; n < 50; ++n) {
    const Chain chain = random_copied_chain(static_cast<std::uint64_t>(n), 6 + n % 5, 2);
    const ChainSolver& solver = chain_solver(movers()[static_cast<std::size_t>(n) % 3]);
    const std::int64_t least = solver.minimum_budget(chain);
    const std::vector<ChainOperation> answer =
        solve_chain(chain, solver, least, {}).schedule.operations;
    const ChainReplay whole = replay_chain(chain, answer);
    for (std::size_t k = 0; k < answer.size(); ++k) {
      if (is_of_copies(answer[k])) {
        std::vector<ChainOperation> fewer = answer;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(k));
        EXPECT_THROW(replay_chain(chain, fewer), ChainReplayError) << n << " without " << k;
        ++taken_out;
      }
      if (k + 1 == answer.size() || !(is_of_copies(answer[k]) || is_of_copies(answer[k + 1])))
        continue;
      std::vector<ChainOperation> other = answer;
      std::swap(other[k], other[k + 1]);
      ++exchanged;
      try {
        // What is legal may be slower or take more; what it takes is what replay says.
        const ChainReplay replay = replay_chain(chain, other);
        EXPECT_TRUE(replay.peak_bytes >= least || replay.seconds >= whole.seconds ||
                    replay.peak_bytes <= whole.peak_bytes);
      } catch (const ChainReplayError&) {
        ++refused;
      }
    }
  }
  std::printf("%d operations of copies taken out, all refused; of %d exchanges %d refused\n",
              taken_out, exchanged, refused);
  EXPECT_GT(taken_out, 300);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace garonne::plan::test
