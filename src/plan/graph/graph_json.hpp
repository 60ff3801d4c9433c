// The file formats "garonne.graph" and "garonne.graph-schedule", version 1 (docs/formats.md).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/graph/computation_graph.hpp"
#include "plan/graph/graph_solver.hpp"

namespace garonne::plan {

nlohmann::ordered_json to_json(const ComputationGraph& graph);

// Throws ConfigError with the path and the key for everything that docs/formats.md does not allow.
ComputationGraph computation_graph_from_json(const nlohmann::json& json, const std::string& path);

// Throws ConfigError, whose key begins with `path`, unless the graph has the properties that
// solvers rely on: indices in range, each value made by one task at most and never read before it
// is made, nothing negative, sizes of at most 2^48 and in total of at most 2^52 bytes.
void check_graph(const ComputationGraph& graph, const std::string& path);

// The answer has a schedule.
nlohmann::ordered_json to_json(const ComputationGraph& graph, const std::string& algorithm,
                               std::int64_t budget_bytes, const GraphAnswer& answer);

}  // namespace garonne::plan
