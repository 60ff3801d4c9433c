#include "plan_search.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/progress.hpp"
#include "plan_programs.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/grid_search.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::apps {

ExitCode search_plans(const RunConfig& config, const SearchOptions& options,
                      const train::DataFacts& facts, int threads, const plan::Cluster& cluster,
                      const plan::CostTable& costs, std::int64_t budget_bytes) {
  train::GridSearchWish wish;
  wish.config = config;
  wish.facts = facts;
  wish.threads = threads;
  wish.ranks = options.ranks;
  wish.most_tensor = options.most_tensor;
  wish.cluster = cluster;
  wish.costs = costs;
  wish.budget_bytes = budget_bytes;
  wish.options.exhaustive = options.exhaustive;
  Progress bar("grids", 0);
  wish.options.progress = [&](std::int64_t done, std::int64_t total, const std::string& what) {
    bar.advance_to(done, fmt::format("of {} {}", total, what));
  };
  const train::GridSearchAnswer answer = train::search_grids(wish);
  bar.clear();
  if (!options.program_directory.empty()) {
    train::Setup setup =
        train::make_setup(train::with_candidate(config, answer.search.best.front().candidate),
                          facts, threads, 0, train::device_facts(config, cluster));
    train::apply_cluster(cluster, costs, setup);
    write_programs(train::plan_grid(setup, budget_bytes, &cluster), options.program_directory);
  }
  if (options.json) {
    fmt::print("{}\n", train::to_json(wish, answer).dump(2));
  } else {
    fmt::print("{}", train::format_grid_search(wish, answer));
    if (!options.program_directory.empty())
      fmt::print("programs of the first: {}/rank_*.json\n", options.program_directory);
  }
  return ExitCode::Done;
}

}  // namespace garonne::apps
