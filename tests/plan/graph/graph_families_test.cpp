// What is promised for training graphs of a thousand tasks: minutes, so under the label long.
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "plan/graph/graph_replay.hpp"
#include "plan/graph/graph_solver.hpp"
#include "plan/graph/sample_graphs.hpp"

namespace garonne::plan {
namespace {

TEST(GraphFamilies, HalfAndQuarterOfTheMemory) {
  for (const auto& [part, most_added] : {std::pair{0.5, 0.07}, std::pair{0.25, 0.18}}) {
    double sum = 0;
    int count = 0;
    for (const char* family : {"residual", "transformer", "u-shaped"}) {
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const ComputationGraph graph = make_sample_graph(family, 1000, seed);
        const ScheduleOutcome kept = replay_schedule(graph, keep_all_schedule(graph));
        const auto budget = static_cast<std::int64_t>(part * static_cast<double>(kept.peak_bytes));
        // Of the processor, so that what else runs does not count.
        const std::clock_t start = std::clock();
        const GraphAnswer answer = graph_solver("annealing").solve(graph, budget, {});
        const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        ASSERT_TRUE(answer.schedule.has_value()) << family << " " << seed;
        const ScheduleOutcome outcome = replay_schedule(graph, *answer.schedule);
        EXPECT_LE(outcome.peak_bytes, budget);
        EXPECT_LT(seconds, 30);
        const double added = outcome.seconds / kept.seconds - 1;
        std::printf(
            "%-12s seed %d, %zu tasks, %.2f of %.3g bytes: +%.2f %% (bound +%.2f %%), %.1f s\n",
            family, static_cast<int>(seed), graph.tasks.size(), part,
            static_cast<double>(kept.peak_bytes), 100 * added,
            100 * (answer.lower_bound_seconds / kept.seconds - 1), seconds);
        std::fflush(stdout);
        sum += added;
        ++count;
      }
    }
    std::printf("average at %.2f: +%.2f %%\n", part, 100 * sum / count);
    EXPECT_LE(sum / count, most_added);
  }
}

}  // namespace
}  // namespace garonne::plan
