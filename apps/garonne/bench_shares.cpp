#include "bench_shares.hpp"
#include "base/json_output.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "counts.hpp"

namespace garonne::apps {

void set_budget_benchmark(CLI::App& command, std::shared_ptr<train::BudgetOptions> options,
                          BudgetTable table, Chosen& chosen) {
  const auto config = add_config_options(command);
  const auto percent = std::make_shared<std::vector<double>>(std::vector<double>{70, 50, 35});
  const auto json = std::make_shared<bool>(false);
  command
      .add_option("--shares", *percent,
                  "budgets, in percent of the bytes that keep-all needs beyond the static ones")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command.add_option("--steps", options->steps, "timed turns, after two that are not")
      ->check(count())
      ->capture_default_str();
  command.add_flag("--json", *json, "print JSON");
  command.callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      RunConfig loaded;
      session.agree([&] { loaded = config->load(); });
      for (const double share : *percent) options->shares.push_back(share / 100);
      const auto rows = train::run_budget_benchmark(loaded, *options, session);
      if (session.rank() != 0) return ExitCode::Done;
      if (*json) {
        fmt::print("{}\n", json_text(table.to_json(rows), 1));
      } else {
        table.print(rows);
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
