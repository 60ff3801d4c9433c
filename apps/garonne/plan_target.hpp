// What a run is planned for: devices, data, threads, and what was measured of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "plan/model/cluster.hpp"
#include "plan/model/cost_table.hpp"
#include "train/workload/data_facts.hpp"

namespace garonne::apps {

struct TargetOptions {
  std::int64_t ranks = 0;             // 0 = the grid's
  std::int64_t devices_per_node = 0;  // 0 = the cluster's, or all on one
  std::string cluster;                // file; empty = this machine
  std::optional<std::string> fields;  // --fields
};

struct Target {
  std::int64_t ranks = 1;
  std::int64_t ranks_on_node = 1;
  std::optional<plan::Cluster> cluster;
  int threads = 1;
  train::DataFacts facts;
  plan::CostTable costs;  // measured on devices like the target's, or empty
};

std::int64_t ranks_of(const RunConfig& config);

// Throws ConfigError where the cluster has fewer devices, IoError where the data are not there.
Target target_of(const RunConfig& config, const TargetOptions& options);

}  // namespace garonne::apps
