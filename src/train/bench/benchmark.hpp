// Steps of a run file on made-up data, timed. Nothing is read or written but the profile's cache.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "dist/session.hpp"

namespace garonne::train {

struct BenchmarkResult {
  double step_seconds = 0;  // median
  double planned_seconds = 0;
  double samples_per_second = 0;  // of the whole grid
  double tokens_per_second = 0;   // 0 where samples are not made of tokens
  std::int64_t peak_bytes = 0;    // this and the next: of the rank with the largest plan
  std::int64_t planned_peak_bytes = 0;
  std::int64_t resident_bytes = 0;   // of this process, its maximum
  double operations_per_second = 0;  // of the model, the mean over ranks
  double product_roof = 0;           // of a rank: fastest large product of the profile
  std::vector<std::pair<std::string, double>> seconds_by_kind;  // of the last step
};

// Collective over all ranks.
BenchmarkResult run_benchmark(const RunConfig& config, std::int64_t steps, dist::Session& session);

}  // namespace garonne::train
