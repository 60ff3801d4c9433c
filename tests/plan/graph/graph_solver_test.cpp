// Solvers of graphs against an exhaustive search on small random graphs, and on GPT blocks.
#include "plan/graph/graph_solver.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include "base/error.hpp"
#include "plan/graph/checkmate_model.hpp"
#include "plan/graph/exhaustive_schedule.hpp"
#include "plan/graph/graph_bound.hpp"
#include "plan/graph/graph_replay.hpp"
#include "plan/graph/linear_program.hpp"
#include "plan/graph/minimum_cut.hpp"
#include "plan/graph/sample_graphs.hpp"

namespace garonne::plan {
namespace {

void expect_answer_holds(const ComputationGraph& graph, std::int64_t budget,
                         const GraphAnswer& answer) {
  ASSERT_TRUE(answer.schedule.has_value());
  const ScheduleOutcome outcome = replay_schedule(graph, *answer.schedule);
  EXPECT_LE(outcome.peak_bytes, budget);
  EXPECT_EQ(outcome.peak_bytes, answer.peak_bytes);
  EXPECT_DOUBLE_EQ(outcome.seconds, answer.seconds);
  EXPECT_GE(answer.seconds, answer.lower_bound_seconds * (1 - 1e-9));
  EXPECT_LE(answer.minimum_bytes, answer.peak_bytes);
}

std::int64_t keep_all_peak(const ComputationGraph& graph) {
  return replay_schedule(graph, keep_all_schedule(graph)).peak_bytes;
}

// Budgets from a little under what a single task needs to keep-all.
std::vector<std::int64_t> budgets_of(const ComputationGraph& graph) {
  const std::int64_t peak = keep_all_peak(graph);
  return {peak * 45 / 100, peak * 60 / 100, peak * 70 / 100,
          peak * 80 / 100, peak * 90 / 100, peak};
}

TEST(GraphSolvers, AreExactOrBoundedOnSmallRandomGraphs) {
  int solved = 0;
  int infeasible = 0;
  int annealing_optimal = 0;
  int tight = 0;
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    const ComputationGraph graph = make_random_graph(4, 2, seed);
    for (const std::int64_t budget : budgets_of(graph)) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " budget " + std::to_string(budget));
      const auto any = fastest_schedule_seconds(graph, budget);
      const double bound = lower_bound_seconds(graph, budget);
      if (any) {
        EXPECT_LE(bound, *any * (1 + 1e-9));
        tight += bound >= *any * (1 - 1e-9);
      }
      const GraphAnswer annealed = graph_solver("annealing").solve(graph, budget, {});
      if (annealed.schedule) {
        expect_answer_holds(graph, budget, annealed);
        ASSERT_TRUE(any.has_value());
        EXPECT_GE(annealed.seconds, *any * (1 - 1e-9));
        annealing_optimal += annealed.seconds <= *any * (1 + 1e-9);
      }
      if (!has_linear_program_solver()) continue;
      const auto in_order = fastest_in_order_seconds(graph, budget);
      const GraphAnswer exact = graph_solver("checkmate").solve(graph, budget, {});
      EXPECT_TRUE(exact.proved);
      EXPECT_FALSE(exact.stopped_by_time_limit);
      if (!in_order) {
        ++infeasible;
        // Annealing is not bound to the order.
        EXPECT_EQ(exact.schedule.has_value(), annealed.schedule.has_value());
        continue;
      }
      expect_answer_holds(graph, budget, exact);
      ASSERT_TRUE(any.has_value());
      EXPECT_GE(exact.seconds, *any * (1 - 1e-9));
      EXPECT_LE(exact.seconds, *in_order * (1 + 1e-9));
      EXPECT_LE(exact.class_bound_seconds.value_or(HUGE_VAL), *in_order * (1 + 1e-9));
      // By itself, without annealing's schedule, it is what the order allows and nothing else.
      const CheckmateModel model(graph, budget);
      const LinearProgramAnswer alone = solve_linear_program(model.program(), {});
      ASSERT_EQ(alone.status, LinearProgramStatus::Optimal);
      const ScheduleOutcome outcome = replay_schedule(graph, model.schedule(alone.values));
      EXPECT_LE(outcome.peak_bytes, budget);
      EXPECT_NEAR(outcome.seconds, *in_order, 1e-9 * *in_order);
      ++solved;
    }
  }
  ASSERT_TRUE(has_linear_program_solver()) << "built without HiGHS, which scripts/setup gets";
  EXPECT_GT(solved, 50);
  EXPECT_GT(infeasible, 10);
  EXPECT_GT(annealing_optimal, solved * 9 / 10);
  EXPECT_GT(tight, solved / 3);
}

TEST(GraphSolvers, ProveTheGptBlock) {
  ASSERT_TRUE(has_linear_program_solver()) << "built without HiGHS, which scripts/setup gets";
  const ComputationGraph graph = make_gpt_block_graph(4096, 512);
  const std::int64_t least = graph_solver("annealing").solve(graph, 1, {}).minimum_bytes;
  const std::int64_t most = keep_all_peak(graph);
  double before = HUGE_VAL;
  for (const int part : {0, 1, 2, 3, 4}) {
    const std::int64_t budget = least + (most - least) * part / 4;
    const GraphAnswer answer = graph_solver("checkmate").solve(graph, budget, {});
    expect_answer_holds(graph, budget, answer);
    EXPECT_TRUE(answer.proved);
    EXPECT_LE(answer.seconds, before);
    before = answer.seconds;
    const GraphAnswer annealed = graph_solver("annealing").solve(graph, budget, {});
    expect_answer_holds(graph, budget, annealed);
    EXPECT_LE(annealed.seconds, answer.seconds * 1.002);
  }
  EXPECT_DOUBLE_EQ(before, replay_schedule(graph, keep_all_schedule(graph)).seconds);
  // Below what one of its tasks needs there is nothing.
  const GraphAnswer nothing = graph_solver("checkmate").solve(graph, least / 4, {});
  EXPECT_FALSE(nothing.schedule.has_value());
  EXPECT_TRUE(nothing.proved);
  EXPECT_EQ(nothing.minimum_bytes, least);
}

// The number that a refusal names is a budget that works, and nothing is found below it.
TEST(GraphSolvers, AnswerAtTheSmallestBudgetTheyName) {
  for (const char* family : {"residual", "transformer", "u-shaped"}) {
    const ComputationGraph graph = make_sample_graph(family, 120, 7);
    GraphSolverOptions options;
    options.iterations = 3;
    const GraphAnswer refused = graph_solver("annealing").solve(graph, 1, options);
    EXPECT_FALSE(refused.schedule.has_value());
    EXPECT_LT(refused.minimum_bytes, keep_all_peak(graph) * 6 / 10);
    const GraphAnswer least =
        graph_solver("annealing").solve(graph, refused.minimum_bytes, options);
    expect_answer_holds(graph, refused.minimum_bytes, least);
    const GraphAnswer below =
        graph_solver("annealing").solve(graph, refused.minimum_bytes - 1, options);
    EXPECT_EQ(below.minimum_bytes, below.schedule ? below.peak_bytes : refused.minimum_bytes);
  }
}

TEST(GraphSolvers, RoundingStaysWithinTheBudget) {
  ASSERT_TRUE(has_linear_program_solver()) << "built without HiGHS, which scripts/setup gets";
  const ComputationGraph graph = make_transformer_graph(60, 3);
  const std::int64_t peak = keep_all_peak(graph);
  int found = 0;
  for (const int part : {5, 6, 7, 8, 9}) {
    const std::int64_t budget = peak * part / 10;
    const GraphAnswer answer = graph_solver("checkmate-rounding").solve(graph, budget, {});
    if (!answer.schedule) continue;
    expect_answer_holds(graph, budget, answer);
    ++found;
  }
  EXPECT_GE(found, 4);
}

TEST(GraphSolvers, StopAtTheTimeLimitAndSaySo) {
  const ComputationGraph graph = make_residual_graph(400, 1);
  GraphSolverOptions options;
  options.iterations = 1'000'000'000;
  // The first answer is within it on slow machines, too.
  options.time_limit_seconds = 1;
  const std::int64_t budget = keep_all_peak(graph) / 2;
  const GraphAnswer answer = graph_solver("annealing").solve(graph, budget, options);
  EXPECT_TRUE(answer.stopped_by_time_limit);
  expect_answer_holds(graph, budget, answer);
}

// Paths through residuals are exponentially many: no step of the search may walk them all.
TEST(GraphSolvers, StopInTimeOnDeepNetworks) {
  const ComputationGraph graph = make_residual_graph(4000, 1);
  GraphSolverOptions options;
  options.time_limit_seconds = 0.5;
  const std::clock_t start = std::clock();
  const GraphAnswer answer = graph_solver("annealing").solve(graph, 1, options);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_TRUE(answer.stopped_by_time_limit);
  EXPECT_FALSE(answer.schedule.has_value());
  EXPECT_LT(answer.minimum_bytes, keep_all_peak(graph));
  EXPECT_LT(seconds, 10);
}

TEST(GraphSolvers, AreDeterministic) {
  const ComputationGraph graph = make_u_shaped_graph(200, 4);
  GraphSolverOptions options;
  options.iterations = 200;
  const std::int64_t budget = keep_all_peak(graph) * 4 / 10;
  const GraphAnswer first = graph_solver("annealing").solve(graph, budget, options);
  const GraphAnswer second = graph_solver("annealing").solve(graph, budget, options);
  ASSERT_TRUE(first.schedule && second.schedule);
  ASSERT_EQ(first.schedule->size(), second.schedule->size());
  for (std::size_t i = 0; i < first.schedule->size(); ++i) {
    ASSERT_EQ((*first.schedule)[i].task, (*second.schedule)[i].task);
    ASSERT_EQ((*first.schedule)[i].option, (*second.schedule)[i].option);
  }
}

TEST(GraphSolvers, RefuseAnUnknownNameAndTooLargeAGraph) {
  const ComputationGraph graph = make_transformer_graph(400, 1);
  EXPECT_THROW(graph_solver("checkmate").solve(graph, 1 << 30, {}), ConfigError);
  EXPECT_THROW(graph_solver("checkmate-rounding").solve(graph, 1 << 30, {}), ConfigError);
  EXPECT_THROW(graph_solver("anealing"), ConfigError);
}

// Whatever legal schedule it is given, what comes back is legal and at least as good.
TEST(ImproveSchedule, IsNeverWorse) {
  int faster = 0;
  int fitted = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const ComputationGraph graph =
        seed % 2 == 0 ? make_transformer_graph(60, seed) : make_residual_graph(80, seed);
    const std::int64_t peak = keep_all_peak(graph);
    GraphSolverOptions few;
    few.iterations = 1;
    for (const int part : {1, 4, 6}) {
      const std::int64_t budget = peak * part / 10;
      const auto given = graph_solver("annealing").solve(graph, peak * 7 / 10, few).schedule;
      ASSERT_TRUE(given.has_value());
      const ScheduleOutcome before = replay_schedule(graph, *given);
      GraphSolverOptions options;
      options.iterations = 30;
      const ScheduleOutcome after =
          replay_schedule(graph, improve_schedule(graph, *given, budget, options));
      if (after.peak_bytes > budget) {
        EXPECT_LE(after.peak_bytes, before.peak_bytes);
        continue;
      }
      fitted += before.peak_bytes > budget;
      if (before.peak_bytes > budget) continue;
      EXPECT_LE(after.seconds, before.seconds);
      faster += after.seconds < before.seconds;
    }
    // Runs for nothing are taken out.
    TaskSchedule wasteful = keep_all_schedule(graph);
    wasteful.insert(wasteful.begin() + 20, {2, 0});
    const ScheduleOutcome clean =
        replay_schedule(graph, improve_schedule(graph, wasteful, 2 * peak, {}));
    EXPECT_LE(clean.seconds,
              replay_schedule(graph, keep_all_schedule(graph)).seconds * (1 + 1e-12));
  }
  EXPECT_GE(fitted, 12);
}

TEST(LinearProgram, SolvesByHand) {
  LinearProgram program;
  const int x = program.add_variable({0, 3, -1, true});
  const int y = program.add_variable({0, 3, -1, true});
  program.add_row(-HUGE_VAL, 7, {{x, 2}, {y, 4}});
  if (!has_linear_program_solver()) {
    EXPECT_THROW(solve_linear_program(program, {}), NotBuiltError);
    return;
  }
  // Reals: x = 3, y = 1/4; integers: y = 0.
  LinearProgramOptions relaxed;
  relaxed.relax = true;
  EXPECT_NEAR(solve_linear_program(program, relaxed).objective, -3.25, 1e-9);
  const LinearProgramAnswer answer = solve_linear_program(program, {});
  EXPECT_EQ(answer.status, LinearProgramStatus::Optimal);
  EXPECT_NEAR(answer.objective, -3, 1e-9);
  EXPECT_NEAR(answer.bound, -3, 1e-6);
  program.add_row(8, HUGE_VAL, {{x, 1}, {y, 1}});
  EXPECT_EQ(solve_linear_program(program, {}).status, LinearProgramStatus::Infeasible);
}

// Against all ways to cut a small graph.
TEST(MinimumCut, IsMinimal) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    std::uint64_t state = seed;
    const auto below = [&state](int limit) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return static_cast<int>((state >> 33) % static_cast<std::uint64_t>(limit));
    };
    const int nodes = 7;
    std::vector<std::vector<std::int64_t>> capacity(7, std::vector<std::int64_t>(7, 0));
    MinimumCut cut(nodes);
    for (int k = 0; k < 16; ++k) {
      const int from = below(nodes);
      const int to = below(nodes);
      if (from == to) continue;
      const std::int64_t size = below(10);
      capacity[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] += size;
      cut.add_edge(from, to, size);
    }
    const auto weight = [&](const std::vector<bool>& side) {
      std::int64_t sum = 0;
      for (std::size_t a = 0; a < 7; ++a) {
        for (std::size_t b = 0; b < 7; ++b) sum += side[a] && !side[b] ? capacity[a][b] : 0;
      }
      return sum;
    };
    std::int64_t best = INT64_MAX;
    for (unsigned bits = 0; bits < 32; ++bits) {
      std::vector<bool> side = {true};
      for (unsigned n = 0; n < 5; ++n) side.push_back((bits >> n & 1U) != 0);
      side.push_back(false);
      best = std::min(best, weight(side));
    }
    const std::vector<bool> side = cut.solve(0, nodes - 1);
    EXPECT_TRUE(side[0]);
    EXPECT_FALSE(side[6]);
    EXPECT_EQ(weight(side), best) << "seed " << seed;
  }
}

}  // namespace
}  // namespace garonne::plan
