// The search over grids for one run file: the models that candidates need, and their Programs.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "plan/grid/grid_search.hpp"
#include "plan/model/cluster.hpp"
#include "plan/model/cost_table.hpp"
#include "train/plans/step_rates.hpp"
#include "train/workload/data_facts.hpp"

namespace garonne::train {

// The keys of a configuration that a search gives values.
const std::vector<std::string>& searched_keys();

struct GridSearchRequest {
  RunConfig config;  // its grid and micro-batch are what is looked for
  // But for these of searched_keys(), which stay as the configuration has them; with their values
  // for people.
  std::map<std::string, std::string> pinned;
  DataFacts facts;
  int threads = 1;  // of a rank
  int ranks = 1;
  int most_tensor = 0;  // 0 = the devices of a node
  plan::Cluster cluster;
  bool on_this_machine = false;  // the cluster is of no file
  plan::CostTable costs;         // measured on the cluster's devices; may be empty
  std::int64_t budget_bytes = 0;
  plan::GridSearchOptions options;
  double tolerance = 0;  // by what share rates may be off, below 1; 0 = nobody asks
};

// Which of the grids of an answer is best where one rate of the cluster is another, by how the
// estimates of all of them change.
struct OtherRate {
  std::string rate;   // for people
  double factor = 1;  // of the cluster's
  std::size_t best = 0;
  double regret = 0;  // so much longer than that, as a share, the first of the answer takes
};

struct GridSearchAnswer {
  plan::GridSearch search;
  ModelWork work;
  bool measured = false;  // all seconds of nodes of the best grid
  bool by_node = false;   // no grid fits by blocks: the leanest, with what single nodes save
  std::vector<OtherRate> other_rates;
};

// Each grid is planned by memory.plan of the configuration where it is not "auto", as plan_grid()
// does, and by blocks that run again on "auto". Throws ConfigError where no candidate can be had at
// all, PlanError where none fits.
GridSearchAnswer search_grids_of_run(const GridSearchRequest& wish);

// "grid.tensor = 4, grid.zero = 3"; empty where nothing is pinned.
std::string describe_pins(const GridSearchRequest& wish);

// The configuration with the keys of a candidate.
RunConfig with_candidate(const RunConfig& config, const plan::GridCandidate& candidate);
// Those keys as lines of a run file.
std::string keys_of(const plan::GridCandidate& candidate);
// And as JSON, with the micro-batches that a rank then has.
nlohmann::ordered_json keys_json(const GridSearchRequest& wish,
                                 const plan::GridCandidate& candidate);

// The table for a terminal, and the format "garonne.grids".
std::string format_grid_search(const GridSearchRequest& wish, const GridSearchAnswer& answer);
nlohmann::ordered_json to_json(const GridSearchRequest& wish, const GridSearchAnswer& answer);

}  // namespace garonne::train
