#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/progress.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "exec/profile/profile.hpp"
#include "plan/chain/chain_json.hpp"
#include "plan/graph/graph_json.hpp"
#include "plan/model/cost_table.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan_programs.hpp"
#include "plan_search.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/explain.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/memory_sweep.hpp"
#include "train/setup/available_memory.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/planning.hpp"
#include "train/workload/workload.hpp"

namespace garonne::apps {
namespace {

struct PlanOptions {
  std::int64_t ranks = 0;             // 0 = the grid's
  std::int64_t devices_per_node = 0;  // 0 = the cluster's, or all on one
  std::string cluster;                // file; empty = this machine
  bool search = false;
  bool exhaustive = false;
  std::int64_t most_tensor = 0;
  bool json = false;
  bool explain = false;
  std::string chain_path;
  std::string graph_path;
  std::string program_directory;
  std::optional<std::string> sweep;
};

nlohmann::ordered_json memory_json(const train::MemoryTable& table) {
  return {{"parameters", table.parameters}, {"gradients", table.gradients},
          {"optimizer", table.optimizer},   {"activations", table.activations},
          {"transients", table.transients}, {"communication", table.communication},
          {"gathered", table.gathered},     {"peak", table.peak}};
}

nlohmann::ordered_json stages_json(const train::GridPlan& plan) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const auto& stage : plan.stages) {
    stages.push_back({{"plan", stage.choice.program.name},
                      {"parameters", stage.setup.model.graph.parameter_elements()},
                      {"peak_bytes", stage.prediction.peak_bytes},
                      {"minimum_budget_bytes", stage.choice.minimum_budget_bytes},
                      {"seconds", stage.prediction.seconds}});
  }
  return stages;
}

void print_stages(const train::GridPlan& plan, bool measured) {
  if (plan.stages.size() == 1) return;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const auto& stage = plan.stages[s];
    const auto& nodes = stage.setup.model.graph.nodes;
    fmt::print("stage {:<3} {:<10} peak {:>14} B ({:>10})  {:>9.2f} M parameters  {} to {}{}\n", s,
               stage.choice.program.name, stage.prediction.peak_bytes,
               format_bytes(stage.prediction.peak_bytes),
               static_cast<double>(stage.setup.model.graph.parameter_elements()) / 1e6,
               nodes.front().name,
               nodes.back().hands_over ? nodes[nodes.size() - 2].name : nodes.back().name,
               s == plan.largest ? "  <- shown below" : "");
  }
  if (measured) {
    fmt::print("bubble: {:.1f} ms of {:.1f} ms\n", 1e3 * plan.bubble_seconds, 1e3 * plan.seconds);
  }
}

ExitCode plan_sweep(const RunConfig& config, const PlanOptions& options,
                    const train::DataFacts& facts, int threads, const plan::CostTable& costs) {
  if (!options.program_directory.empty())
    throw ConfigError("--program", options.program_directory,
                      "one Program is not what a sweep has");
  const train::SweepAxes axes = train::parse_sweep_axes(*options.sweep);
  const std::int64_t budget = train::resolve_budget(
      config, static_cast<int>(config.grid.data * config.grid.pipeline * config.grid.tensor));
  Progress bar("sweep", 0);
  const train::MemorySweep sweep = train::memory_sweep(
      config, axes, facts, threads, costs, budget, [&](int done, int) { bar.advance_to(done); });
  bar.clear();
  fmt::print("{}",
             options.json ? train::to_json(sweep).dump(2) + "\n" : train::format_sweep(sweep));
  return ExitCode::Done;
}

void write_text(const std::string& path, const std::string& text) {
  FileWriter file(path);
  file.write(text.data(), text.size());
  file.finish();
}

// The first micro-batch as other solvers take it.
void write_problems(const train::Setup& setup, const PlanOptions& options) {
  if (options.chain_path.empty() && options.graph_path.empty()) return;
  const plan::StageProblem problem =
      plan::make_stage_problem(setup.model.graph, setup.step, plan::GradientBuckets::Made);
  if (!options.graph_path.empty()) {
    write_text(options.graph_path, plan::to_json(problem.tasks.graph).dump(1) + "\n");
  }
  if (options.chain_path.empty()) return;
  if (!problem.chain) {
    throw ConfigError("--chain", options.chain_path,
                      "this model has no value that everything passes through; use --graph");
  }
  write_text(options.chain_path, plan::to_json(problem.chain->chain).dump(1) + "\n");
}

void check_size(const plan::Cluster& cluster, std::int64_t ranks, std::int64_t on_node) {
  if (ranks <= on_node * cluster.nodes) return;
  throw ConfigError("--ranks", fmt::format("{}", ranks),
                    fmt::format("are more than the {} devices of {} ({} nodes of {})",
                                on_node * cluster.nodes, cluster.name, cluster.nodes, on_node));
}

void expect_search_alone(const PlanOptions& options) {
  const auto refuse = [](const std::string& option) {
    throw ConfigError(option, "", "is for one grid, not for a search; give the grid's keys");
  };
  if (options.sweep) refuse("--sweep");
  if (options.explain) refuse("--explain");
  if (!options.chain_path.empty()) refuse("--chain");
  if (!options.graph_path.empty()) refuse("--graph");
}

std::int64_t budget_of(const RunConfig& config, const plan::Cluster& cluster) {
  return config.memory.budget == RunConfig::automatic_budget ? cluster.memory_bytes
                                                             : config.memory.budget;
}

ExitCode plan_run(const RunConfig& config, const PlanOptions& options) {
  const std::int64_t configured = config.grid.data * config.grid.pipeline * config.grid.tensor;
  const bool searches =
      options.search || options.exhaustive || (options.ranks > 0 && options.ranks != configured);
  const std::int64_t ranks = options.ranks > 0 ? options.ranks : configured;
  std::optional<plan::Cluster> cluster;
  if (!options.cluster.empty()) cluster = plan::load_cluster(options.cluster);
  const std::int64_t on_node = options.devices_per_node > 0 ? options.devices_per_node
                               : cluster                    ? cluster->devices_per_node
                                                            : ranks;
  if (cluster) check_size(*cluster, ranks, static_cast<int>(on_node));
  const train::DataFacts facts = train::facts_of(config);
  const int threads = train::threads_of_rank(config, static_cast<int>(std::min(ranks, on_node)));
  // What was measured here says nothing about another machine's devices.
  const bool like_here = !cluster || cluster->profiled_here;
  const auto warn = [](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); };
  const plan::CostTable costs =
      like_here ? exec::load_cached_costs(threads, warn) : plan::CostTable();
  if (searches) {
    expect_search_alone(options);
    if (!cluster) {
      cluster = train::this_machine(config, costs, static_cast<int>(ranks),
                                    static_cast<int>(std::min(ranks, on_node)));
    }
    cluster->devices_per_node = static_cast<int>(on_node);
    SearchOptions search;
    search.ranks = static_cast<int>(ranks);
    search.most_tensor = static_cast<int>(options.most_tensor);
    search.exhaustive = options.exhaustive;
    search.json = options.json;
    search.program_directory = options.program_directory;
    return search_plans(config, search, facts, threads, *cluster, costs,
                        budget_of(config, *cluster));
  }
  if (cluster) cluster->devices_per_node = static_cast<int>(on_node);
  if (options.sweep) return plan_sweep(config, options, facts, threads, costs);
  train::Setup setup = train::make_setup(config, facts, threads);
  const bool measured =
      cluster ? train::apply_cluster(*cluster, costs, setup) : train::apply_costs(costs, setup);
  // A cluster file says how fast its devices are.
  const bool knows_seconds = measured || cluster;
  const std::int64_t budget = cluster ? budget_of(config, *cluster)
                                      : train::resolve_budget(config, static_cast<int>(configured));
  const train::GridPlan plan = train::plan_grid(setup, budget, cluster ? &*cluster : nullptr);
  const train::Setup& shown = plan.stages[plan.largest].setup;
  const train::Choice& choice = plan.stages[plan.largest].choice;
  const train::MemoryTable table = train::memory_table(choice.prediction, budget);
  if (!options.program_directory.empty()) write_programs(plan, options.program_directory);
  write_problems(shown, options);

  if (options.json) {
    nlohmann::ordered_json candidates = nlohmann::ordered_json::array();
    for (const auto& candidate : choice.candidates) {
      nlohmann::ordered_json row = {{"plan", candidate.name}, {"peak_bytes", candidate.peak_bytes}};
      row["seconds"] = knows_seconds ? nlohmann::ordered_json(candidate.seconds)
                                     : nlohmann::ordered_json(nullptr);
      candidates.push_back(std::move(row));
    }
    nlohmann::ordered_json json = {{"format", "garonne.plan"},
                                   {"version", 1},
                                   {"ranks", setup.grid.ranks()},
                                   {"plan", choice.program.name},
                                   {"budget_bytes", budget},
                                   {"peak_bytes", choice.prediction.peak_bytes},
                                   {"evaluation_peak_bytes", choice.evaluation.peak_bytes},
                                   {"minimum_budget_bytes", plan.minimum_budget_bytes},
                                   {"parameters", setup.model.graph.parameter_elements()},
                                   {"micro_batches", setup.step.micro_batches},
                                   {"costs", measured  ? "measured"
                                             : cluster ? "nominal"
                                                       : "declared"},
                                   {"memory", memory_json(table)},
                                   {"candidates", std::move(candidates)}};
    json["seconds"] =
        knows_seconds ? nlohmann::ordered_json(plan.seconds) : nlohmann::ordered_json(nullptr);
    if (plan.stages.size() > 1) json["stages"] = stages_json(plan);
    fmt::print("{}\n", json.dump(2));
    return ExitCode::Done;
  }
  fmt::print("{} ranks: {} · {} micro-batches a rank · {:.2f} M parameters, {}\n",
             setup.grid.ranks(), to_string(setup.grid.shape()), setup.step.micro_batches,
             static_cast<double>(setup.model.graph.parameter_elements()) / 1e6,
             config.train.precision);
  if (!cluster && config.memory.budget == RunConfig::automatic_budget)
    fmt::print("{}", train::describe_automatic_budget(static_cast<int>(configured)));
  print_stages(plan, knows_seconds);
  for (const auto& candidate : choice.candidates) {
    fmt::print("plan {:<10} peak {:>14} B ({}){}{}\n", candidate.name, candidate.peak_bytes,
               format_bytes(candidate.peak_bytes),
               knows_seconds ? fmt::format("  {:.1f} ms a step", 1e3 * candidate.seconds) : "",
               candidate.name == choice.program.name ? "  <- chosen" : "");
  }
  fmt::print("{}", train::format_memory_table(table, budget));
  fmt::print("at the peak: {}\n",
             choice.prediction.peak_instruction < 0
                 ? std::string("start of the step")
                 : plan::describe(choice.program.instructions[static_cast<std::size_t>(
                       choice.prediction.peak_instruction)]));
  if (plan.cut_as_declared) fmt::print("{}", train::cut_as_declared_note);
  if (options.explain) fmt::print("{}", train::explain(shown, choice, budget, measured));
  fmt::print("smallest budget: {} B ({})\n", plan.minimum_budget_bytes,
             format_bytes(plan.minimum_budget_bytes));
  if (measured) {
    fmt::print("a step: {:.1f} ms (measured costs of this machine, {} threads a rank)\n",
               1e3 * plan.seconds, threads);
  } else if (cluster) {
    fmt::print("a step: {:.1f} ms (by the figures of {})\n", 1e3 * plan.seconds, cluster->name);
  } else {
    fmt::print(
        "a step: not known, no profile of this model is cached here (`garonne profile` makes "
        "one)\n");
    if (plan.stages.size() > 1)
      fmt::print("with a profile the stages may be cut elsewhere; the smallest budget stays\n");
  }
  if (!options.program_directory.empty())
    fmt::print("programs: {}/rank_*.json\n", options.program_directory);
  return ExitCode::Done;
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
  command->add_option("--cluster", options->cluster,
                      "cluster file (config/clusters/*.toml): devices and links to plan for, in "
                      "place of this machine");
  command
      ->add_option("--devices-per-node", options->devices_per_node,
                   "instead of the cluster's; without a cluster file all ranks are on one node")
      ->check(count());
  command
      ->add_option("--most-tensor", options->most_tensor,
                   "most tensor ranks of a search; as many as devices on a node where not given")
      ->check(count());
  command->add_flag("--exhaustive", options->exhaustive,
                    "search without bounds: plan every grid by node (slow)");
  command->add_flag("--json", options->json, "print JSON (format garonne.plan)");
  command->add_option("--program", options->program_directory,
                      "write the Program there; ranks with equal Programs share a file");
  command->add_option("--sweep", options->sweep,
                      "memory over sizes around the configured ones: batch, sequence or "
                      "batch,sequence (with --json: format garonne.sweep)");
  command->add_flag("--explain", options->explain,
                    "say what binds, what is run again, and what other budgets would cost");
  command->add_option(
      "--chain", options->chain_path,
      "write the blocks of a micro-batch there (garonne.chain), for `garonne solve`");
  command->add_option(
      "--graph", options->graph_path,
      "write the tasks of a micro-batch there (garonne.graph), for `garonne solve`");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "plan");
      return plan_run(config->load(), *options);
    };
  });
}

void add_profile(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "profile", "measure each distinct node of a model once and cache the costs");
  const auto config = add_config_options(*command);
  const auto json = std::make_shared<bool>(false);
  const auto again = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print the cost table (format garonne.costs)");
  command->add_flag("--again", *again,
                    "measure what is cached once more and keep the shorter times: for a cache that "
                    "was filled while the machine did other things");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "profile");
      const RunConfig loaded = config->load();
      const train::DataFacts facts = train::facts_of(loaded);
      const int threads = train::threads_of_rank(loaded, static_cast<int>(loaded.grid.data));
      const train::Setup setup = train::make_setup(loaded, facts, threads);
      const train::ComputeSession compute(threads);
      const plan::CostTable table =
          *again ? train::measure_costs_again(setup, threads)
                 : train::obtain_costs(setup, threads, nlohmann::json::object(), session);
      if (*json) {
        fmt::print("{}\n", plan::to_json(table).dump(1));
        return ExitCode::Done;
      }
      fmt::print("{}\n{:<44} {:>10} {:>10} {:>12} {:>12} {:>12}\n", table.machine, "node",
                 "forward ms", "backward", "value B", "private B", "transient B");
      std::set<std::string> shown;
      for (const auto& node : setup.model.graph.nodes) {
        // What communicates is not measured here.
        const auto found = table.rows.find(node.cost_key);
        if (found == table.rows.end() || !shown.insert(node.cost_key).second) continue;
        const plan::CostRow& row = found->second;
        fmt::print("{:<44} {:>10.3f} {:>10.3f} {:>12} {:>12} {:>12}\n", node.cost_key,
                   1e3 * row.forward_keep_seconds, 1e3 * row.backward_seconds, row.value_bytes,
                   row.private_bytes, row.backward_transient_bytes);
      }
      for (const auto& [key, library] : table.products.items()) {
        fmt::print("{:<44} {}\n", key, library.get<std::string>());
      }
      fmt::print("cached in {}\n", exec::cost_table_path(table.machine));
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
