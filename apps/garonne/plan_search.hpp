// `garonne plan` without a grid: the fastest grids of a number of ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/config.hpp"
#include "base/error.hpp"
#include "plan/model/cluster.hpp"
#include "plan/model/cost_table.hpp"
#include "plan_job.hpp"
#include "train/workload/data_facts.hpp"

namespace garonne::apps {

struct SearchOptions {
  int ranks = 1;
  int most_tensor = 0;  // 0 = the devices of a node
  bool exhaustive = false;
  bool json = false;
  double tolerance = 0;  // GridSearchRequest
  std::string program_directory;
  std::string planners;                       // of plan::planners_of, to compare with; empty = none
  const JobOptions* job = nullptr;            // of the fastest grid
  std::map<std::string, std::string> pinned;  // GridSearchRequest
  bool is_cluster_file = false;               // what the cluster is from
};

// `costs`: measured on the cluster's devices, or empty. Prints the table; throws PlanError where no
// grid fits `budget_bytes`, ConfigError for an unknown planner.
ExitCode search_plans(const RunConfig& config, const SearchOptions& options,
                      const train::DataFacts& facts, int threads, const plan::Cluster& cluster,
                      const plan::CostTable& costs, std::int64_t budget_bytes);

}  // namespace garonne::apps
