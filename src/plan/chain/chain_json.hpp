// The file formats "garonne.chain" and "garonne.chain-schedule", version 1 (docs/formats.md).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/chain/chain.hpp"
#include "plan/chain/chain_replay.hpp"

namespace garonne::plan {

inline constexpr int most_chain_blocks = 2048;
inline constexpr int most_block_options = 1024;

nlohmann::ordered_json to_json(const Chain& chain);
// Throws ConfigError with the path and the key for everything that docs/formats.md does not allow.
Chain chain_from_json(const nlohmann::json& source, const std::string& path);

// What `garonne solve` writes; a function of its inputs only.
struct ChainSchedule {
  std::string algorithm;
  std::int64_t budget_bytes = 0;
  std::int64_t peak_bytes = 0;
  double seconds = 0;
  double lower_bound_seconds = 0;
  ChainReplay copies;    // what is moved
  ChainReplay keep_all;  // every block kept with option 0
  std::int64_t minimum_budget_bytes = 0;
  std::vector<ChainOperation> operations;
};
nlohmann::ordered_json to_json(const ChainSchedule& schedule);

}  // namespace garonne::plan
