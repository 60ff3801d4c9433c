// Replay of schedules of tasks, and the timeline that solvers work on against it.
#include <gtest/gtest.h>

#include <random>

#include "plan/graph/graph_replay.hpp"
#include "plan/graph/sample_graphs.hpp"
#include "plan/graph/schedule_timeline.hpp"

namespace garonne::plan {
namespace {

// x -> a -> y -> b -> z, and a backward of b that reads y and z and makes g, wanted at the end.
ComputationGraph small_graph() {
  ComputationGraph graph;
  graph.values = {{"x", 1, true, false},
                  {"y", 10, false, false},
                  {"y.record", 100, false, false},
                  {"z", 1000, false, false},
                  {"g", 10000, false, true}};
  graph.tasks = {{"a", {0}, {}, {{"keep", {1, 2}, 1.0, 5}, {"discard", {1}, 0.5, 0}}, false},
                 {"b", {1}, {}, {{"run", {3}, 2.0, 0}}, false},
                 {"b.backward", {2, 3}, {}, {{"run", {4}, 4.0, 7}}, true}};
  return graph;
}

int step_of(const ComputationGraph& graph, const TaskSchedule& schedule) {
  try {
    replay_schedule(graph, schedule);
  } catch (const ScheduleError& error) {
    return error.step();
  }
  return -1;
}

TEST(ReplaySchedule, CountsByHand) {
  const ComputationGraph graph = small_graph();
  const ScheduleOutcome kept = replay_schedule(graph, keep_all_schedule(graph));
  EXPECT_DOUBLE_EQ(kept.seconds, 7);
  // x + y + record + transient; y + record + z; record + z + g + transient.
  EXPECT_EQ(kept.during_bytes, (std::vector<std::int64_t>{116, 1110, 11107}));
  EXPECT_EQ(kept.live_bytes, (std::vector<std::int64_t>{110, 1100, 10000}));
  EXPECT_EQ(kept.peak_bytes, 11107);
  EXPECT_EQ(kept.peak_step, 2);
  // The record is dropped and made again: x stays for that, the second y is freed at once.
  const ScheduleOutcome again = replay_schedule(graph, {{0, 1}, {1, 0}, {0, 0}, {2, 0}});
  EXPECT_DOUBLE_EQ(again.seconds, 7.5);
  EXPECT_EQ(again.during_bytes, (std::vector<std::int64_t>{11, 1011, 1116, 11107}));
}

TEST(ReplaySchedule, RefusesWhatIsIllegal) {
  ComputationGraph graph = small_graph();
  EXPECT_EQ(step_of(graph, {{0, 0}, {1, 0}, {2, 0}}), -1);
  EXPECT_EQ(step_of(graph, {{0, 1}, {1, 0}, {2, 0}}), 2);          // no record
  EXPECT_EQ(step_of(graph, {{1, 0}, {0, 0}, {2, 0}}), 0);          // y is not made
  EXPECT_EQ(step_of(graph, {{0, 0}, {1, 0}, {2, 0}, {2, 0}}), 3);  // once
  EXPECT_EQ(step_of(graph, {{0, 0}, {1, 0}}), 2);                  // missing
  EXPECT_EQ(step_of(graph, {{0, 2}, {1, 0}, {2, 0}}), 0);          // no such option
  EXPECT_EQ(step_of(graph, {{0, 0}, {3, 0}, {2, 0}}), 1);          // no such task
  graph.tasks.push_back({"c.backward", {4}, {}, {{"run", {}, 1.0, 0}}, true});
  graph.tasks.push_back({"d.backward", {4}, {}, {{"run", {}, 1.0, 0}}, true});
  EXPECT_EQ(step_of(graph, {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}}), -1);
  EXPECT_EQ(step_of(graph, {{0, 0}, {1, 0}, {2, 0}, {4, 0}, {3, 0}}), 4);  // order of once
}

TEST(ReplaySchedule, WantsWhatIsWantedAtTheEnd) {
  ComputationGraph graph = small_graph();
  graph.values[2].live_at_end = true;
  EXPECT_EQ(step_of(graph, keep_all_schedule(graph)), -1);
  graph.tasks[0].options.erase(graph.tasks[0].options.begin());
  graph.tasks[2].reads = {3};
  EXPECT_EQ(step_of(graph, keep_all_schedule(graph)), 3);
}

// Puts runs in and takes them out at random; after each change all bytes are as replay says.
TEST(ScheduleTimeline, AgreesWithReplay) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const ComputationGraph graph = make_random_graph(8, 4, seed);
    ScheduleTimeline timeline(graph, keep_all_schedule(graph));
    std::mt19937_64 random(seed);
    const auto below = [&](int limit) {
      return static_cast<int>(random() % static_cast<std::uint64_t>(limit));
    };
    for (int change = 0; change < 60; ++change) {
      const int position = below(timeline.size());
      const TaskStep step = timeline.step(position);
      const Task& task = graph.tasks[static_cast<std::size_t>(step.task)];
      if (below(3) == 0 && !task.once && timeline.runs(step.task) > 1) {
        bool first = true;
        for (int i = 0; i < position; ++i) first = first && timeline.step(i).task != step.task;
        if (first) continue;
        timeline.erase(position);
      } else {
        const int other = timeline.step(below(position + 1)).task;
        bool ran = false;
        for (int i = 0; i < position; ++i) ran = ran || timeline.step(i).task == other;
        if (!ran || graph.tasks[static_cast<std::size_t>(other)].once) continue;
        const auto options = graph.tasks[static_cast<std::size_t>(other)].options.size();
        timeline.insert(position, {other, below(static_cast<int>(options))});
      }
      const ScheduleOutcome outcome = replay_schedule(graph, timeline.schedule());
      ASSERT_EQ(outcome.during_bytes, timeline.during()) << "seed " << seed;
      ASSERT_EQ(outcome.peak_bytes, timeline.peak_bytes());
      ASSERT_NEAR(outcome.seconds, timeline.seconds(), 1e-9);
      for (int i = 1; i <= timeline.size(); ++i) {
        ASSERT_EQ(timeline.live_before(i), outcome.live_bytes[static_cast<std::size_t>(i) - 1]);
      }
    }
    EXPECT_GT(timeline.size(), static_cast<int>(graph.tasks.size()));
  }
}

}  // namespace
}  // namespace garonne::plan
