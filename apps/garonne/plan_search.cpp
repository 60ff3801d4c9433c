#include "plan_search.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_output.hpp"
#include "base/progress.hpp"
#include "plan_programs.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/grid_search.hpp"
#include "train/plans/planner_comparison.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::apps {
namespace {

// Of the fastest grid.
std::string write_found_job(const RunConfig& config, const SearchOptions& options,
                            const train::DataFacts& facts, int threads,
                            const plan::Cluster& cluster, std::int64_t budget_bytes,
                            const train::GridSearchAnswer& answer) {
  if (options.job == nullptr) return "";
  const plan::RankedGrid& best = answer.search.best.front();
  PlannedJob planned;
  planned.config = train::with_candidate(config, best.candidate);
  planned.found = options_of(best.candidate);
  const plan::DeviceFacts device = train::device_facts(config, cluster);
  planned.on_gpus = device.is_gpu();
  planned.ranks_on_node = cluster.devices_per_node;
  planned.threads = threads;
  if (answer.measured || options.is_cluster_file) planned.step_seconds = best.outcome.seconds;
  train::Setup setup = train::make_setup(planned.config, facts, threads, 0, device);
  train::use_host_of(cluster, setup);
  planned.parameter_elements = train::whole_parameter_elements(setup.model);
  planned.budget_bytes = budget_bytes;
  planned.host_bytes = host_bytes_of(setup);
  return write_job(*options.job, planned);
}

}  // namespace

ExitCode search_plans(const RunConfig& config, const SearchOptions& options,
                      const train::DataFacts& facts, int threads, const plan::Cluster& cluster,
                      const plan::CostTable& costs, std::int64_t budget_bytes) {
  train::GridSearchRequest wish;
  wish.config = config;
  wish.facts = facts;
  wish.threads = threads;
  wish.ranks = options.ranks;
  wish.most_tensor = options.most_tensor;
  wish.cluster = cluster;
  wish.on_this_machine = !options.is_cluster_file;
  wish.costs = costs;
  wish.budget_bytes = budget_bytes;
  wish.pinned = options.pinned;
  wish.options.exhaustive = options.exhaustive;
  wish.tolerance = options.tolerance;
  Progress bar("grids", 0);
  wish.options.progress = [&](std::int64_t done, std::int64_t total, const std::string& what) {
    bar.advance_to(done, fmt::format("of {} {}", total, what));
  };
  if (!options.planners.empty()) {
    const train::PlannerComparison comparison = train::compare_planners(wish, options.planners);
    bar.clear();
    fmt::print("{}", options.json ? json_text(train::to_json(wish, comparison), 2) + "\n"
                                  : train::format_planners(wish, comparison));
    return ExitCode::Done;
  }
  const train::GridSearchAnswer answer = train::search_grids_of_run(wish);
  bar.clear();
  if (!options.program_directory.empty()) {
    train::Setup setup =
        train::make_setup(train::with_candidate(config, answer.search.best.front().candidate),
                          facts, threads, 0, train::device_facts(config, cluster));
    train::apply_cluster(cluster, costs, setup);
    write_programs(train::plan_grid(setup, budget_bytes, &cluster), options.program_directory);
  }
  const std::string job =
      write_found_job(config, options, facts, threads, cluster, budget_bytes, answer);
  if (options.json) {
    fmt::print("{}\n", json_text(train::to_json(wish, answer), 2));
  } else {
    fmt::print("{}", train::format_grid_search(wish, answer));
    if (options.is_cluster_file) fmt::print("{}", train::note_of_processor(config, cluster));
    if (!options.program_directory.empty())
      fmt::print("programs of the first: {}/rank_*.json\n", options.program_directory);
    fmt::print("{}", job);
  }
  return ExitCode::Done;
}

}  // namespace garonne::apps
