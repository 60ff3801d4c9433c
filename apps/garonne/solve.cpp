#include "solve.hpp"

#include <fmt/format.h>

#include <array>

#include "base/byte_units.hpp"
#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/json_output.hpp"
#include "base/output_file.hpp"
#include "command.hpp"
#include "counts.hpp"

namespace garonne::apps {
namespace {

struct SolvedFormat {
  const char* format;
  ExitCode (*solve)(const nlohmann::json&, const SolveOptions&);
};
constexpr std::array solved_formats = {SolvedFormat{"garonne.chain", solve_chain_file},
                                       SolvedFormat{"garonne.graph", solve_graph_file}};

void refuse_graph_options(const plan::GraphSolverOptions& given) {
  const plan::GraphSolverOptions none;
  const auto refuse = [](const char* option) {
    throw ConfigError(option, "", "is for graphs: solvers of chains neither search nor draw lots");
  };
  if (given.iterations != none.iterations) refuse("--iterations");
  if (given.seed != none.seed) refuse("--seed");
  if (given.time_limit_seconds != none.time_limit_seconds) refuse("--time-limit");
}

ExitCode solve(const SolveOptions& options) {
  if (!options.output.empty()) {
    expect_output(
        "--output", options.output,
        json_output("an answer of `garonne solve`",
                    {"garonne.chain-schedule", "garonne.graph-schedule", "garonne.chain-sweep"}),
        {options.path});
  }
  const nlohmann::json source =
      parse_json(read_given_file(options.path, "give the path of a garonne.chain or garonne.graph"),
                 options.path);
  const JsonFile file(source, options.path);
  const JsonPlace format = file.root().key("format");
  const std::string given = format.text();
  if (given == "garonne.chain") refuse_graph_options(options.graph);
  std::string known;
  for (const auto& [name, solver] : solved_formats) {
    if (given == name) return solver(source, options);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
  }
  format.refuse("is none of " + known);
}

}  // namespace

std::int64_t budget_bytes(const SolveOptions& options) {
  const auto bytes = parse_bytes(options.budget);
  if (!bytes) {
    throw ConfigError("--budget", options.budget,
                      fmt::format("is no number of bytes such as 600000, 600MiB or 2 GiB; units "
                                  "are {}",
                                  byte_units));
  }
  return *bytes;
}

void print_or_write(const SolveOptions& options, const nlohmann::ordered_json& result,
                    const std::string& text) {
  if (!options.output.empty()) write_file_durably(options.output, json_text(result, 1) + "\n");
  fmt::print("{}", options.json ? json_text(result, 1) + "\n" : text);
}

void add_solve(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "solve", "solve a rematerialisation problem from a file, by any of the algorithms");
  const auto options = std::make_shared<SolveOptions>();
  command->add_option("file", options->path, "the problem (format garonne.chain or garonne.graph)")
      ->required();
  CLI::Option* budget =
      command->add_option("--budget", options->budget, "bytes, with or without a unit")
          ->type_name("BYTES");
  command
      ->add_option("--algorithm", options->algorithm,
                   "a solver's name; best for chains, annealing for graphs if none is given")
      ->type_name("NAME");
  command
      ->add_option("--slots", options->slots,
                   "pieces of the budget in tables over memory, instead of as many as needed")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{10'000'000}));
  command
      ->add_option("--sweep", options->sweep,
                   "so many budgets from the smallest to keep-all, by all algorithms")
      ->check(CLI::Range(2, 1000))
      ->excludes(budget);
  command
      ->add_option("--iterations", options->graph.iterations,
                   "graphs: rounds of annealing, nodes of checkmate's search")
      ->check(count(1, INT64_MAX));
  command->add_option("--seed", options->graph.seed, "graphs: seed of the search");
  command
      ->add_option("--time-limit", options->graph.time_limit_seconds,
                   "graphs: seconds; the answer then says whether the clock ended the search")
      ->check(CLI::Range(1e-9, 1e9));
  command->add_option("--output", options->output, "write the answer there, as JSON")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "print the answer as JSON");
  command->callback([=, &chosen] {
    if (options->sweep == 0 && budget->empty()) throw CLI::RequiredError("--budget or --sweep");
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "solve");
      return solve(*options);
    };
  });
}

}  // namespace garonne::apps
