#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_output.hpp"
#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "plan/chain/chain_json.hpp"
#include "plan/graph/graph_json.hpp"
#include "plan/model/cost_table.hpp"
#include "plan/planners/planner.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan_job.hpp"
#include "plan_programs.hpp"
#include "plan_search.hpp"
#include "plan_target.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/grid_search.hpp"
#include "train/plans/memory_sweep.hpp"
#include "train/plans/plan_answer.hpp"
#include "train/plans/saved_programs.hpp"
#include "train/plans/step_rates.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/communicators.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"
#include "train/workload/workload.hpp"

namespace garonne::apps {
namespace {

struct PlanOptions : TargetOptions {
  bool search = false;
  bool exhaustive = false;
  std::string planners;
  std::int64_t most_tensor = 0;
  double tolerance = 0;  // percent
  bool json = false;
  bool explain = false;
  std::string chain_path;
  std::string graph_path;
  std::string program_directory;
  std::optional<std::string> sweep;
  std::shared_ptr<JobOptions> job;
};

ExitCode plan_sweep(const RunConfig& config, const PlanOptions& options,
                    const train::DataFacts& facts, int threads, const plan::CostTable& costs) {
  if (!options.program_directory.empty())
    throw ConfigError("--program", options.program_directory,
                      "one Program is not what a sweep has");
  if (!options.job->path.empty())
    throw ConfigError("--sbatch", options.job->path, "is for one grid, not for a sweep");
  if (!options.cluster.empty() && plan::load_cluster(options.cluster).device.is_gpu())
    throw ConfigError("--sweep", *options.sweep, "is of processors; leave out --cluster");
  const auto refuse = [](const std::string& option, const std::string& value) {
    throw ConfigError(option, value, "is of one plan, and a sweep makes many; leave out --sweep");
  };
  if (options.explain) refuse("--explain", "");
  if (!options.chain_path.empty()) refuse("--chain", options.chain_path);
  if (!options.graph_path.empty()) refuse("--graph", options.graph_path);
  const train::SweepAxes axes = train::parse_sweep_axes(*options.sweep);
  const std::int64_t budget = train::resolve_budget(config, static_cast<int>(ranks_of(config)));
  Progress bar("sweep", 0);
  const train::MemorySweep sweep = train::memory_sweep(
      config, axes, facts, threads, costs, budget, [&](int done, int) { bar.advance_to(done); });
  bar.clear();
  fmt::print(
      "{}", options.json ? json_text(train::to_json(sweep), 2) + "\n" : train::format_sweep(sweep));
  return ExitCode::Done;
}

// The first micro-batch as other solvers take it.
void write_problems(const train::Setup& setup, const PlanOptions& options) {
  if (options.chain_path.empty() && options.graph_path.empty()) return;
  const plan::StageProblem problem =
      plan::make_stage_problem(setup.model.graph, setup.step, plan::GradientBuckets::Made);
  if (!options.graph_path.empty()) {
    write_file_durably(options.graph_path, json_text(plan::to_json(problem.tasks.graph), 1) + "\n");
  }
  if (options.chain_path.empty()) return;
  if (!problem.chain) {
    throw ConfigError("--chain", options.chain_path,
                      "this model has no value that everything passes through; use --graph");
  }
  write_file_durably(options.chain_path, json_text(plan::to_json(problem.chain->chain), 1) + "\n");
}

void expect_search_alone(const PlanOptions& options) {
  const auto refuse_beside_planners = [](const std::string& option) {
    throw ConfigError(option, "", "is for a search, not for a comparison with --planner");
  };
  if (!options.planners.empty()) {
    if (!options.program_directory.empty()) refuse_beside_planners("--program");
    if (!options.job->path.empty()) refuse_beside_planners("--sbatch");
    if (options.tolerance > 0) refuse_beside_planners("--tolerance");
  }
  const auto refuse = [](const std::string& option) {
    throw ConfigError(option, "", "is for one grid, not for a search; give the grid's keys");
  };
  if (options.sweep) refuse("--sweep");
  if (options.explain) refuse("--explain");
  if (!options.chain_path.empty()) refuse("--chain");
  if (!options.graph_path.empty()) refuse("--graph");
}

void expect_comparable(const RunConfig& config, std::map<std::string, std::string>& pinned) {
  pinned.erase("train.micro_batch");
  if (!pinned.empty()) {
    const auto& [key, value] = *pinned.begin();
    throw ConfigError(key, value, "is what planners choose; leave it out beside --planner");
  }
  if (config.memory.plan != "auto") {
    throw ConfigError("memory.plan", config.memory.plan,
                      "is not for a comparison with --planner, whose choices are planned alike: "
                      "blocks run again where memory asks for it; leave it at auto");
  }
}

ExitCode plan_search(const RunConfig& config, const PlanOptions& options, Target target) {
  expect_search_alone(options);
  if (!target.cluster) {
    target.cluster = train::this_machine(config, target.costs, static_cast<int>(target.ranks),
                                         static_cast<int>(target.ranks_on_node));
    if (options.devices_per_node > 0)
      target.cluster->devices_per_node = static_cast<int>(options.devices_per_node);
  }
  SearchOptions search;
  search.ranks = static_cast<int>(target.ranks);
  search.most_tensor = static_cast<int>(options.most_tensor);
  search.exhaustive = options.exhaustive;
  search.planners = options.planners;
  search.json = options.json;
  search.tolerance = options.tolerance / 100;
  search.program_directory = options.program_directory;
  search.is_cluster_file = !options.cluster.empty();
  for (const std::string& key : train::searched_keys()) {
    const auto given = options.job->given.find(key);
    if (given != options.job->given.end()) search.pinned.insert(*given);
  }
  // Planners of the literature lay out what they are asked for, with the run's micro-batch.
  if (!options.planners.empty()) expect_comparable(config, search.pinned);
  if (!options.job->path.empty()) search.job = options.job.get();
  return search_plans(config, search, target.facts, target.threads, *target.cluster, target.costs,
                      train::budget_on_cluster(config, *target.cluster));
}

// The grid of the run file.
ExitCode plan_one_grid(const RunConfig& config, const PlanOptions& options, const Target& target) {
  const auto& cluster = target.cluster;
  train::Setup setup = train::make_setup(
      config, target.facts, target.threads, 0,
      cluster ? train::device_facts(config, *cluster) : train::device_facts(config));
  if (!cluster) setup.ranks_on_node = static_cast<int>(target.ranks_on_node);
  const bool measured = cluster ? train::apply_cluster(*cluster, target.costs, setup)
                                : train::apply_costs(target.costs, setup);
  const std::int64_t budget =
      cluster ? train::budget_on_cluster(config, *cluster)
              : train::resolve_budget(config, static_cast<int>(ranks_of(config)));
  if (!cluster) train::use_lower_tiers_here(setup, budget);
  const train::GridPlan plan = train::plan_grid(setup, budget, cluster ? &*cluster : nullptr);
  if (!options.program_directory.empty()) write_programs(plan, options.program_directory);
  write_problems(plan.stages[plan.largest].setup, options);
  train::PlanAnswer answer{setup, plan, budget};
  answer.costs = measured  ? train::CostSource::Measured
                 : cluster ? train::CostSource::Cluster
                           : train::CostSource::Declared;
  answer.cluster = cluster ? &*cluster : nullptr;
  answer.threads = target.threads;
  answer.explains = options.explain;
  if (answer.costs != train::CostSource::Declared) {
    answer.work = train::model_work(
        config, target.facts, target.threads, setup.declaration.device,
        cluster ? train::device_flops_of(*cluster, setup) : target.costs.product_roof);
  }
  PlannedJob planned;
  planned.config = config;
  planned.on_gpus = cluster ? train::device_facts(config, *cluster).is_gpu()
                            : train::device_kind(config) == DeviceKind::Cuda;
  planned.ranks_on_node = target.ranks_on_node;
  planned.threads = target.threads;
  if (answer.costs != train::CostSource::Declared) planned.step_seconds = plan.seconds;
  planned.parameter_elements = train::whole_parameter_elements(setup.model);
  planned.budget_bytes = budget;
  planned.host_bytes = host_bytes_of(setup);
  const std::string job = write_job(*options.job, planned);
  if (options.json) {
    fmt::print("{}\n", json_text(train::to_json(answer), 2));
    return ExitCode::Done;
  }
  fmt::print("{}", train::format_plan(answer));
  if (planned.on_gpus && config.grid.transport != "mpi") {
    if (const std::int64_t bytes = train::most_communicator_bytes(setup); bytes > 0)
      fmt::print("nccl      up to {} of each device beside the budget\n", format_bytes(bytes));
  }
  if (cluster) fmt::print("{}", train::note_of_processor(config, *cluster));
  if (!options.program_directory.empty())
    fmt::print("programs: {}/rank_*.json\n", options.program_directory);
  fmt::print("{}", job);
  return ExitCode::Done;
}

// Before anything is planned.
void expect_outputs(const PlanOptions& options) {
  const std::vector<std::string> inputs = {options.cluster, options.job->run_file};
  const auto expect_one = [&](const std::string& option, const std::string& path,
                              const OutputKind& kind) {
    if (!path.empty()) expect_output(option, path, kind, inputs);
  };
  expect_one("--chain", options.chain_path, json_output("a chain of Garonne", {"garonne.chain"}));
  expect_one("--graph", options.graph_path, json_output("a graph of Garonne", {"garonne.graph"}));
  expect_one("--sbatch", options.job->path,
             text_output("a job script of `garonne plan`", "# Written by garonne plan --sbatch."));
  train::expect_program_folder("--program", options.program_directory);
}

ExitCode plan_run(const RunConfig& config, const PlanOptions& options) {
  expect_outputs(options);
  // A cluster file says what there is elsewhere.
  if (options.cluster.empty()) {
    train::expect_device_built(config);
    train::check_transport(config);
  }
  const Target target = target_of(config, options);
  if (options.search || options.exhaustive || !options.planners.empty() ||
      target.ranks != ranks_of(config))
    return plan_search(config, options, target);
  if (options.tolerance > 0) {
    throw ConfigError("--tolerance", fmt::format("{}", options.tolerance),
                      "is for a search; give --search, or --ranks with another number");
  }
  if (options.most_tensor > 0) {
    throw ConfigError("--most-tensor", fmt::format("{}", options.most_tensor),
                      "is for a search; give --search, or --ranks with another number");
  }
  if (options.sweep) return plan_sweep(config, options, target.facts, target.threads, target.costs);
  return plan_one_grid(config, options, target);
}

std::string planner_names() {
  std::string names;
  for (const plan::NamedPlanner& planner : plan::named_planners())
    names += (names.empty() ? "" : ", ") + std::string(planner.name);
  return names;
}

}  // namespace

void add_plan(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "plan", "show memory and time of a run before it is queued; no MPI, no device");
  const auto config = add_config_options(*command);
  const auto options = std::make_shared<PlanOptions>();
  constexpr std::int64_t most_ranks = 1 << 16;
  command
      ->add_option("--ranks", options->ranks,
                   "so many ranks; where the grid of the run file has another number, search for "
                   "the fastest grids (with --json: format garonne.grids)")
      ->check(CLI::Range(std::int64_t{1}, most_ranks));
  command->add_flag("--search", options->search,
                    "search for the fastest grids also where the run file's would do: data, "
                    "pipeline and tensor ranks, schedule, ZeRO, micro-batch");
  command
      ->add_option("--cluster", options->cluster,
                   "cluster file (config/clusters/*.toml): devices and links to plan for, in "
                   "place of this machine")
      ->type_name("FILE");
  command
      ->add_option("--devices-per-node", options->devices_per_node,
                   "instead of the cluster's; without a cluster file all ranks are on one node")
      ->check(count());
  command
      ->add_option("--most-tensor", options->most_tensor,
                   "most tensor ranks of a search; as many as devices on a node where not given")
      ->check(count());
  command
      ->add_option("--tolerance", options->tolerance,
                   "of a search: say which of the best grids stay best where a rate of the cluster "
                   "is so many percent slower or faster")
      ->check(CLI::Range(0.0, 90.0));
  command->add_flag("--exhaustive", options->exhaustive,
                    "search without bounds: plan every grid by node (slow)");
  command
      ->add_option("--planner", options->planners,
                   "compare what the search finds with planners of the literature on the same "
                   "inputs, each choice planned and replayed here: all, or names with commas: " +
                       planner_names() + " (with --json: format garonne.planners)")
      ->type_name("NAME");
  command->add_flag("--json", options->json, "print JSON (format garonne.plan)");
  command
      ->add_option("--program", options->program_directory,
                   "write the Program there; ranks with equal Programs share a file")
      ->type_name("DIR");
  command
      ->add_option(
          "--fields", options->fields,
          "plan for fields of these sizes, whose files need not be there: channels, "
          "points along each axis, and the grid where it is no box (periodic, equiangular, "
          "equiangular-midpoints or legendre-gauss), as 73x721x1440:equiangular")
      ->type_name("SIZES");
  command
      ->add_option("--sweep", options->sweep,
                   "memory over sizes around the configured ones: batch, sequence or "
                   "batch,sequence (with --json: format garonne.sweep)")
      ->type_name("SIZE");
  command->add_flag("--explain", options->explain,
                    "say what binds, what is run again, and what other budgets would cost");
  command
      ->add_option("--chain", options->chain_path,
                   "write the blocks of a micro-batch there (garonne.chain), for `garonne solve`")
      ->type_name("FILE");
  command
      ->add_option("--graph", options->graph_path,
                   "write the tasks of a micro-batch there (garonne.graph), for `garonne solve`")
      ->type_name("FILE");
  options->job = add_job_options(*command);
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "plan");
      options->job->cluster = options->cluster;
      options->job->run_file = config->path;
      options->job->given = *config->given;
      return plan_run(config->load(), *options);
    };
  });
}

}  // namespace garonne::apps
