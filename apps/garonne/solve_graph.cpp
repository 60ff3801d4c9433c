// `garonne solve` for graphs of tasks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/bytes.hpp"
#include "bench_solvers.hpp"
#include "plan/graph/graph_json.hpp"
#include "plan/graph/graph_replay.hpp"
#include "plan/graph/graph_solver.hpp"
#include "plan/graph/linear_program.hpp"
#include "plan/graph/sample_graphs.hpp"
#include "solve.hpp"

namespace garonne::apps {
namespace {

std::string bytes_text(std::int64_t count) {
  return fmt::format("{} B ({})", count, format_bytes(count));
}

std::string answer_text(const plan::ComputationGraph& graph, const std::string& algorithm,
                        std::int64_t budget, const plan::GraphAnswer& answer, double spent) {
  const plan::ScheduleOutcome keep_all =
      plan::replay_schedule(graph, plan::keep_all_schedule(graph));
  std::string text = fmt::format("{} · {} tasks · {} steps{}{}\n", algorithm, graph.tasks.size(),
                                 answer.schedule->size(), answer.proved ? " · proved" : "",
                                 answer.stopped_by_time_limit ? " · stopped by --time-limit" : "");
  const auto row = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  const auto bound = [&](const char* name, double seconds) {
    row(name, fmt::format("{:.6g} s: this is {:+.2f} %", seconds,
                          percent_above(answer.seconds, seconds)));
  };
  row("budget", bytes_text(budget));
  row("peak", bytes_text(answer.peak_bytes));
  row("smallest budget", bytes_text(answer.minimum_bytes) + " known");
  row("seconds", fmt::format("{:.6g}", answer.seconds));
  row("keep-all", fmt::format("{:.6g} s in {}: this is {:+.2f} %", keep_all.seconds,
                              bytes_text(keep_all.peak_bytes),
                              percent_above(answer.seconds, keep_all.seconds)));
  bound("lower bound", answer.lower_bound_seconds);
  if (answer.class_bound_seconds) bound("in this order", *answer.class_bound_seconds);
  row("solved in", fmt::format("{:.3f} s", spent));
  return text;
}

}  // namespace

ExitCode solve_graph_file(const nlohmann::json& source, const SolveOptions& options) {
  if (options.slots > 0) {
    throw ConfigError("--slots", fmt::format("{}", options.slots),
                      "is for chains: solvers of graphs count bytes exactly");
  }
  if (options.sweep > 0) {
    throw ConfigError("--sweep", fmt::format("{}", options.sweep),
                      "is for chains; a graph is solved for one --budget");
  }
  const plan::ComputationGraph graph = plan::computation_graph_from_json(source, options.path);
  const plan::GraphSolver& solver =
      plan::graph_solver(options.algorithm.empty() ? "annealing" : options.algorithm);
  const std::int64_t budget = budget_bytes(options);
  const auto start = std::chrono::steady_clock::now();
  const plan::GraphAnswer answer = solver.solve(graph, budget, options.graph);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  if (!answer.schedule) {
    throw PlanError(std::max(answer.minimum_bytes, budget + 1), budget,
                    answer.stopped_by_time_limit
                        ? "as far as is known after --time-limit"
                        : "as far as is known, and with --algorithm annealing");
  }
  print_or_write(options, plan::to_json(graph, solver.name, budget, answer),
                 answer_text(graph, solver.name, budget, answer, spent.count()));
  return ExitCode::Done;
}

std::vector<SolverCase> graph_solver_cases() {
  std::vector<SolverCase> cases;
  for (const auto& solver : plan::graph_solvers()) {
    const bool annealing = solver.name == "annealing";
    if (!annealing && !plan::has_linear_program_solver()) continue;
    for (const char* family : {"residual", "transformer", "u-shaped"}) {
      const std::vector<int> sizes = annealing ? std::vector{100, 300, 1000} : std::vector{40, 100};
      for (const int size : sizes) {
        cases.push_back(
            {family, solver.name, size, [&solver, family, size] {
               const auto graph = plan::make_sample_graph(family, size, 1);
               const auto keep_all = plan::replay_schedule(graph, plan::keep_all_schedule(graph));
               plan::GraphSolverOptions options;
               // Proving the optimum may take hours from a hundred tasks on.
               options.time_limit_seconds = 30;
               const auto answer = solver.solve(graph, keep_all.peak_bytes * 7 / 10, options);
               if (!answer.schedule) return std::string("no plan at 70 %");
               return fmt::format("{:+.2f} % time at 70 % of keep-all{}",
                                  percent_above(answer.seconds, keep_all.seconds),
                                  answer.proved                  ? ", proved"
                                  : answer.stopped_by_time_limit ? ", stopped after 30 s"
                                                                 : "");
             }});
      }
    }
  }
  return cases;
}

}  // namespace garonne::apps
