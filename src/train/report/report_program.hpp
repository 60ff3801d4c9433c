// The Programs that a run left in its directory, as a report shows them: bytes by kind, the
// schedule, and a table of nodes, predicted beside measured.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "plan/program/program.hpp"
#include "plan/program/replay.hpp"

namespace garonne::train {

// One rank's file in RUN/program.
struct RankProgram {
  plan::Program program;
  plan::Prediction prediction;              // replayed from the file
  std::vector<plan::Measurement> measured;  // one an instruction
};

// Reads rank_0.json to rank_<ranks-1>.json; none at all where the run has not ended yet. Throws
// ConfigError with the path for a file that is malformed, illegal or not measured, IoError for one
// that is missing beside others.
std::vector<RankProgram> read_rank_programs(const std::string& run_directory, int ranks);

// What bytes are called in a report; the last has no buffers.
inline constexpr int report_kinds = 8;
inline constexpr std::array<std::string_view, report_kinds> report_kind_names = {
    "parameters", "optimizer",       "gradients",     "values",
    "records",    "value gradients", "communication", "transients"};
using ReportBytes = std::array<std::int64_t, report_kinds>;

// Bytes by kind in a tier during each instruction: what was live, what it makes, and on the device
// its transients (scalars count as those). Their sum is what replay says.
std::vector<ReportBytes> bytes_during(const plan::Program& program, Tier tier);

// One row of the table of nodes: all executions of one node in the step of one rank.
struct NodeRow {
  std::string node;
  int forwards = 0;
  int recomputations = 0;  // among the forwards
  int backwards = 0;
  double forward_seconds = 0;  // of all forwards together
  double backward_seconds = 0;
  double measured_forward_seconds = 0;
  double measured_backward_seconds = 0;
  std::int64_t output_bytes = 0;
  std::int64_t record_bytes = 0;
  std::int64_t transient_bytes = 0;  // the largest
};
// In the order in which the nodes first run.
std::vector<NodeRow> node_rows(const RankProgram& rank);

// The keys "programs", "ranks" and "nodes" of the report's data. `kinds`: kind of each node by
// name; may lack some.
nlohmann::ordered_json programs_json(const std::vector<RankProgram>& ranks,
                                     const std::map<std::string, std::string>& kinds);

}  // namespace garonne::train
