// `garonne solve` for chains: one budget, or a curve of time against budget.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/bytes.hpp"
#include "plan/chain/chain_solver.hpp"
#include "solve.hpp"

namespace garonne::apps {
namespace {

// A sweep fills many tables; each gets a fifth of what a single budget has.
constexpr std::int64_t sweep_table_bytes = 200'000'000;

ExitCode solve_one(const plan::Chain& chain, const SolveOptions& options) {
  const plan::ChainSolver& solver =
      plan::chain_solver(options.algorithm.empty() ? "best" : options.algorithm);
  const auto start = std::chrono::steady_clock::now();
  plan::ChainSolverOptions solver_options;
  solver_options.slots = options.slots;
  const plan::SolvedChain solved =
      plan::solve_chain(chain, solver, budget_bytes(options), solver_options);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  const plan::ChainSchedule& schedule = solved.schedule;
  std::string text =
      fmt::format("{} · {} blocks · {} operations{}{}\n", schedule.algorithm, chain.blocks.size(),
                  schedule.operations.size(), solved.remark.empty() ? "" : " · ", solved.remark);
  const auto row = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  const auto bytes = [](std::int64_t count) {
    return fmt::format("{} B ({})", count, format_bytes(count));
  };
  row("budget", bytes(schedule.budget_bytes));
  row("peak", bytes(schedule.peak_bytes));
  row("smallest budget", bytes(schedule.minimum_budget_bytes));
  row("seconds", fmt::format("{:.6g}", schedule.seconds));
  row("keep-all", fmt::format("{:.6g} s in {}: this is {:+.2f} %", schedule.keep_all.seconds,
                              bytes(schedule.keep_all.peak_bytes),
                              percent_above(schedule.seconds, schedule.keep_all.seconds)));
  row("lower bound", fmt::format("{:.6g} s: this is {:+.2f} %", schedule.lower_bound_seconds,
                                 percent_above(schedule.seconds, schedule.lower_bound_seconds)));
  if (chain.links) {
    const plan::ChainReplay& copies = schedule.copies;
    row("copies", fmt::format("{} out, {} in, {} below at most; passes wait {:.6g} s",
                              format_bytes(copies.out_bytes), format_bytes(copies.in_bytes),
                              format_bytes(copies.peak_below_bytes), copies.waiting_seconds));
  }
  row("solved in", fmt::format("{:.3f} s", spent.count()));
  print_or_write(options, plan::to_json(schedule), text);
  return ExitCode::Done;
}

ExitCode solve_sweep(const plan::Chain& chain, const SolveOptions& options) {
  std::vector<plan::ChainSolver> solvers;
  if (options.algorithm.empty()) {
    for (const auto& solver : plan::chain_solvers()) {
      if (plan::refusal_of(solver, chain).empty()) solvers.push_back(solver);
    }
  } else {
    solvers.push_back(plan::chain_solver(options.algorithm));
    const std::string refusal = plan::refusal_of(solvers[0], chain);
    if (!refusal.empty()) throw ConfigError("--algorithm", solvers[0].name, refusal);
  }
  std::vector<std::int64_t> minimum;
  for (const auto& solver : solvers) minimum.push_back(solver.minimum_budget(chain));
  const std::int64_t least = *std::min_element(minimum.begin(), minimum.end());
  const std::int64_t most =
      std::max(least, plan::replay_chain(chain, plan::keep_all_sequence(chain)).peak_bytes);
  plan::ChainSolverOptions solver_options;
  solver_options.slots = options.slots;
  solver_options.table_bytes = sweep_table_bytes;
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  std::string text = fmt::format("seconds at {} budgets from {} B to {} B\n{:>20}", options.sweep,
                                 least, most, "budget B");
  std::vector<std::size_t> width;
  for (const auto& solver : solvers) {
    width.push_back(std::max<std::size_t>(12, solver.name.size() + 2));
    text += fmt::format("{:>{}}", solver.name, width.back());
  }
  text += fmt::format("{:>13}\n", "lower bound");
  for (std::int64_t n = 0; n < options.sweep; ++n) {
    const auto budget =
        n + 1 == options.sweep
            ? most
            : least + static_cast<std::int64_t>(static_cast<double>(most - least) *
                                                static_cast<double>(n) /
                                                static_cast<double>(options.sweep - 1));
    nlohmann::ordered_json seconds = nlohmann::ordered_json::object();
    double bound = 0;
    text += fmt::format("{:>20}", budget);
    for (std::size_t s = 0; s < solvers.size(); ++s) {
      if (budget < minimum[s]) {
        seconds[solvers[s].name] = nullptr;
        text += fmt::format("{:>{}}", "-", width[s]);
        continue;
      }
      const plan::ChainSchedule schedule =
          plan::solve_chain(chain, solvers[s], budget, solver_options).schedule;
      seconds[solvers[s].name] = schedule.seconds;
      bound = std::max(bound, schedule.lower_bound_seconds);
      text += fmt::format("{:>{}.6g}", schedule.seconds, width[s]);
    }
    text += fmt::format("{:>13.6g}\n", bound);
    points.push_back({{"budget_bytes", budget},
                      {"seconds", std::move(seconds)},
                      {"lower_bound_seconds", bound}});
  }
  nlohmann::ordered_json minima = nlohmann::ordered_json::object();
  for (std::size_t s = 0; s < solvers.size(); ++s) minima[solvers[s].name] = minimum[s];
  const nlohmann::ordered_json result = {{"format", "garonne.chain-sweep"},
                                         {"version", 1},
                                         {"minimum_budget_bytes", std::move(minima)},
                                         {"points", std::move(points)}};
  print_or_write(options, result, text);
  return ExitCode::Done;
}

}  // namespace

ExitCode solve_chain_file(const nlohmann::json& source, const SolveOptions& options) {
  const plan::Chain chain = plan::chain_from_json(source, options.path);
  return options.sweep > 0 ? solve_sweep(chain, options) : solve_one(chain, options);
}

}  // namespace garonne::apps
