// How commands are declared: each adds its subcommand to the command line and says what to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/config.hpp"
#include "base/error.hpp"
#include "dist/fact_agreement.hpp"
#include "dist/session.hpp"

namespace garonne::apps {

using Action = std::function<ExitCode(dist::Session&)>;

// Where the chosen command leaves what it does.
struct Chosen {
  Action action;
};

// A run file and its overrides, as options of a command; one option a key of the configuration.
struct ConfigOptions {
  std::string path;
  std::shared_ptr<std::map<std::string, std::string>> given =
      std::make_shared<std::map<std::string, std::string>>();

  RunConfig load() const;
};
enum class RunFile { Needed, Optional };
std::shared_ptr<ConfigOptions> add_config_options(CLI::App& command,
                                                  RunFile file = RunFile::Needed);

// What all ranks have to have alike before a command begins: the program itself, the command and
// its options. `shows_help`: it ends with what --help or --version print.
dist::Facts command_facts(const CLI::App& app, bool shows_help);

// Throws on every rank, as one usage error, unless the command runs on one rank.
void expect_one_rank(const dist::Session& session, const std::string& command);

void add_train(CLI::App& app, Chosen& chosen);
void add_plan(CLI::App& app, Chosen& chosen);
void add_profile(CLI::App& app, Chosen& chosen);
void add_data(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);
void add_simulate(CLI::App& app, Chosen& chosen);
void add_eval(CLI::App& app, Chosen& chosen);
void add_forecast(CLI::App& app, Chosen& chosen);
void add_check(CLI::App& app, Chosen& chosen);
void add_checkpoint(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);
void add_solve(CLI::App& app, Chosen& chosen);
void add_stop(CLI::App& app, Chosen& chosen);
// Subcommands of `data`.
void add_data_generators(CLI::App& data, Chosen& chosen);
void add_data_inspect(CLI::App& data, Chosen& chosen);
void add_data_statistics(CLI::App& data, Chosen& chosen);
// Subcommands of `bench`.
void add_bench_budgets(CLI::App& bench, Chosen& chosen);
void add_bench_offload(CLI::App& bench, Chosen& chosen);
void add_bench_device(CLI::App& bench, Chosen& chosen);
void add_bench_links(CLI::App& bench, Chosen& chosen);
void add_bench_solvers(CLI::App& bench, Chosen& chosen);
void add_bench_transforms(CLI::App& bench, Chosen& chosen);

}  // namespace garonne::apps
