// The checkpoints of a run at a glance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace garonne::train {

struct CheckpointSummary {
  std::int64_t step = 0;
  std::string path;
  std::int64_t saved_at = 0;  // seconds since 1970
  std::string wrong;  // why it is none that a run goes on from; empty where nothing is known
  std::size_t files = 0;
  std::size_t tensors = 0;
  std::int64_t bytes = 0;
};

// Of a run directory, by their manifests, ascending; the files themselves are not read. Throws
// IoError where there is none.
std::vector<CheckpointSummary> summarise_checkpoints(const std::string& run_directory);

// A line for people, and an object of docs/formats.md.
std::string to_text(const CheckpointSummary& summary);
nlohmann::ordered_json to_json(const CheckpointSummary& summary);

struct VerifiedCheckpoint {
  std::int64_t files = 0;
  std::string wrong;  // what verify_checkpoint() throws; empty where it is whole
};
VerifiedCheckpoint look_through_checkpoint(const std::string& checkpoint);

}  // namespace garonne::train
