// `garonne bench solvers`: seconds and memory of each solver by size of its problem.
#include "bench_solvers.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/json_output.hpp"
#include "command.hpp"
#include "plan/chain/chain_solver.hpp"
#include "plan/chain/sample_chain.hpp"

namespace garonne::apps {
namespace {

struct Measured {
  double seconds = 0;
  std::int64_t memory_bytes = 0;
  char outcome[96] = {};
};

std::int64_t largest_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

// In a process of its own, so that its peak of memory is this case's alone. None if it died.
std::optional<Measured> measure(const SolverCase& item) {
  int ends[2];
  expect(pipe(ends) == 0, "a pipe can be made");
  const pid_t child = fork();
  expect(child >= 0, "a process can be made");
  if (child == 0) {
    Measured measured;
    const std::int64_t before = largest_resident_bytes();
    const auto start = std::chrono::steady_clock::now();
    const std::string outcome = item.run();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    measured.seconds = spent.count();
    measured.memory_bytes = largest_resident_bytes() - before;
    std::strncpy(measured.outcome, outcome.c_str(), sizeof measured.outcome - 1);
    const bool written = write(ends[1], &measured, sizeof measured) == sizeof measured;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  Measured measured;
  const bool whole = read(ends[0], &measured, sizeof measured) == sizeof measured;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return whole ? std::optional(measured) : std::nullopt;
}

ExitCode bench_solvers(bool json) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (!json)
    fmt::print("{:<13}{:<20}{:>8}{:>12}{:>14}  {}\n", "problem", "solver", "size", "seconds",
               "memory", "outcome");
  std::vector<SolverCase> cases = chain_solver_cases();
  for (auto& item : graph_solver_cases()) cases.push_back(std::move(item));
  for (const auto& item : cases) {
    const auto measured = measure(item);
    expect(measured.has_value(), item.solver + " ends");
    if (json) {
      rows.push_back({{"problem", item.problem},
                      {"solver", item.solver},
                      {"size", item.size},
                      {"seconds", measured->seconds},
                      {"memory_bytes", measured->memory_bytes},
                      {"outcome", measured->outcome}});
      continue;
    }
    fmt::print("{:<13}{:<20}{:>8}{:>12.3f}{:>14}  {}\n", item.problem, item.solver, item.size,
               measured->seconds, format_bytes(measured->memory_bytes), measured->outcome);
    std::fflush(stdout);
  }
  if (json) fmt::print("{}\n", json_text(rows, 1));
  return ExitCode::Done;
}

}  // namespace

std::vector<SolverCase> chain_solver_cases() {
  constexpr int options = 10;
  constexpr std::int64_t slots = 8000;
  // What a block keeps is copied in about the time of its forward.
  static constexpr plan::ChainLinks links = {1e7, 1e7};
  std::vector<SolverCase> cases;
  const auto add = [&](const plan::ChainSolver& solver, bool linked) {
    for (const int blocks : {12, 25, 50, 100, 200}) {
      cases.push_back(
          {linked ? "chain, links" : "chain", solver.name, blocks, [&solver, blocks, linked] {
             plan::Chain chain = plan::sample_chain(blocks, options);
             if (linked) chain.links = links;
             const auto keep_all = plan::replay_chain(chain, plan::keep_all_sequence(chain));
             plan::ChainSolverOptions given;
             given.slots = slots;
             const auto answer = solver.solve(chain, keep_all.peak_bytes / 4, given);
             if (!answer.operations) return std::string("no plan at a quarter");
             const double seconds = plan::replay_chain(chain, *answer.operations).seconds;
             return fmt::format("{:+.2f} % time at a quarter of keep-all",
                                100 * (seconds / keep_all.seconds - 1));
           }});
    }
  };
  for (const auto& solver : plan::chain_solvers()) {
    if (!solver.refusal) add(solver, false);
    if (solver.refusal || solver.name == "best") add(solver, true);
  }
  return cases;
}

void add_bench_solvers(CLI::App& bench, Chosen& chosen) {
  CLI::App* command =
      bench.add_subcommand("solvers", "seconds and memory of each solver by size of its problem");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "bench solvers");
      return bench_solvers(*json);
    };
  });
}

}  // namespace garonne::apps
