// What the commands share that time plans under several budgets.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "train/bench/budget_benchmark.hpp"

namespace garonne::apps {

struct BudgetTable {
  void (*print)(const std::vector<train::BudgetRow>& rows);
  nlohmann::ordered_json (*to_json)(const std::vector<train::BudgetRow>& rows);
};

// Above tables with a column "added".
std::string heading_of(const std::vector<train::BudgetRow>& rows);

// Of the column of plans.
std::size_t width_of_plans(const std::vector<train::BudgetRow>& rows);

// Adds --shares, --budgets, --steps, --json and the run's options to a subcommand that measures
// what `options` says, to which options of its own may still write, and shows it as `table` does.
void set_budget_benchmark(CLI::App& command, std::shared_ptr<train::BudgetOptions> options,
                          BudgetTable table, Chosen& chosen);

}  // namespace garonne::apps
