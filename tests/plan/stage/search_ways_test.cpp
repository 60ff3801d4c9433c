// The search over single nodes changes the ways in which records are kept, too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "plan/graph/graph_replay.hpp"
#include "plan/graph/graph_solver.hpp"
#include "plan/graph/liveness.hpp"
#include "plan/stage/packed_record.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan {
namespace {

using namespace test;

const StageSolver& search() {
  const auto& solvers = stage_solvers();
  return *std::find_if(solvers.begin(), solvers.end(),
                       [](const auto& solver) { return solver.name == "search"; });
}

// What came of it before: the best of the others, improved with all records in the ways of that.
double seconds_in_the_ways_of_the_start(const StageProblem& problem, std::int64_t budget_bytes,
                                        const NodeSchedule& lean) {
  std::vector<NodeSchedule> starts = {lean};
  for (const StageSolver& solver : stage_solvers()) {
    if (!solver.in_auto || solver.name == "search") continue;
    for (auto& schedule : solver.solve(problem, budget_bytes, lean))
      starts.push_back(std::move(schedule));
  }
  TaskSchedule best;
  double seconds = std::numeric_limits<double>::infinity();
  for (const NodeSchedule& start : starts) {
    TaskSchedule schedule = to_task_schedule(problem.tasks, start);
    const LivenessTrace trace = trace_liveness(problem.tasks.graph, schedule);
    if (trace.peak_bytes > budget_bytes || trace.seconds >= seconds) continue;
    seconds = trace.seconds;
    best = std::move(schedule);
  }
  if (best.empty()) return seconds;
  GraphSolverOptions options;
  options.iterations = 1000;
  return trace_liveness(problem.tasks.graph,
                        improve_schedule(problem.tasks.graph, best, budget_bytes, options))
      .seconds;
}

TEST(SearchStageSolver, ChangesTheWaysOfItsStart) {
  int problems = 0;
  int faster = 0;
  double gained = 0;  // parts of what was recomputed or packed
  for (unsigned seed = 0; seed < 30; ++seed) {
    const ModelGraph graph = with_packed_records(random_graph(seed));
    const StageProblem problem =
        make_stage_problem(graph, step_shape(1, 1, 0), GradientBuckets::Made);
    const NodeSchedule everything = schedule_of(graph, "keep-all");
    const NodeSchedule lean = schedule_of(graph, "full");
    const LivenessTrace most =
        trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, everything));
    const std::int64_t least =
        trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, lean)).peak_bytes;
    for (const int part : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("seed {}, part {}", seed, part));
      const std::int64_t budget = least + (most.peak_bytes - least) * part / 4;
      const double before = seconds_in_the_ways_of_the_start(problem, budget, lean);
      if (before == std::numeric_limits<double>::infinity()) continue;
      const auto found = search().solve(problem, budget, lean);
      ASSERT_EQ(found.size(), 1);
      const ScheduleOutcome outcome =
          replay_schedule(problem.tasks.graph, to_task_schedule(problem.tasks, found.front()));
      EXPECT_LE(outcome.peak_bytes, budget);
      EXPECT_LE(outcome.seconds, before + 1e-9);
      ++problems;
      if (outcome.seconds > before - 1e-9) continue;
      ++faster;
      gained += (before - outcome.seconds) / (before - most.seconds);
    }
  }
  fmt::print("faster in {} of {} problems, by {:.1f} % of the time added there\n", faster, problems,
             faster > 0 ? 100 * gained / faster : 0.0);
  EXPECT_GT(problems, 30);
  EXPECT_GT(faster, 0);
}

// With one way each nothing changes.
TEST(SearchStageSolver, FindsWhatItFoundWhereThereIsOneWay) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    const ModelGraph graph = random_graph(seed);
    const StageProblem problem =
        make_stage_problem(graph, step_shape(1, 1, 0), GradientBuckets::Made);
    const NodeSchedule lean = schedule_of(graph, "full");
    const LivenessTrace most = trace_liveness(
        problem.tasks.graph, to_task_schedule(problem.tasks, schedule_of(graph, "keep-all")));
    const std::int64_t budget = most.peak_bytes * 9 / 10;
    const double before = seconds_in_the_ways_of_the_start(problem, budget, lean);
    if (before == std::numeric_limits<double>::infinity()) continue;
    const auto found = search().solve(problem, budget, lean);
    ASSERT_EQ(found.size(), 1);
    EXPECT_EQ(
        trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, found.front())).seconds,
        before);
  }
}

}  // namespace
}  // namespace garonne::plan
