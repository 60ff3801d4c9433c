// What `garonne solve` is asked, for each kind of file that it takes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "plan/graph/graph_solver.hpp"

namespace garonne::apps {

struct SolveOptions {
  std::string path;
  std::string budget;     // empty with a sweep
  std::string algorithm;  // empty: best, or all in a sweep
  std::int64_t slots = 0;
  std::int64_t sweep = 0;  // points; 0: one budget
  plan::GraphSolverOptions graph;
  std::string output;
  bool json = false;
};

// 0 where the base takes no time.
inline double percent_above(double seconds, double base) {
  return base > 0 ? 100 * (seconds / base - 1) : 0;
}

// Throws ConfigError unless it is a number of bytes.
std::int64_t budget_bytes(const SolveOptions& options);

// What a command made goes to --output, and as JSON or as text to standard output.
void print_or_write(const SolveOptions& options, const nlohmann::ordered_json& result,
                    const std::string& text);

ExitCode solve_chain_file(const nlohmann::json& source, const SolveOptions& options);
ExitCode solve_graph_file(const nlohmann::json& source, const SolveOptions& options);

}  // namespace garonne::apps
