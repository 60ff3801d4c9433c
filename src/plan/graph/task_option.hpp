// The options of a task taken together, and which of them to run.
#pragma once

#include <vector>

#include "plan/graph/computation_graph.hpp"

namespace garonne::plan {

// What any option of the task makes, each value once; that of option 0 first.
std::vector<int> made_by_any_option(const Task& task);

// The most values that one option of the task makes.
std::size_t most_made(const Task& task);

// Whether a run with the option reads the value, in place or not.
bool reads(const Task& task, int option, int value);

// The option with the fewest seconds, then bytes, that makes all `needed` values; -1 = none does.
int cheapest_option(const ComputationGraph& graph, int task, const std::vector<int>& needed);

// The first option that makes what both options make; -1 = none does.
int option_of_both(const Task& task, int option, int other);

}  // namespace garonne::plan
