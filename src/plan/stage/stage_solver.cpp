#include "plan/stage/stage_solver.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/chain/rotor_table.hpp"
#include "plan/graph/graph_solver.hpp"
#include "plan/graph/liveness.hpp"
#include "plan/stage/kept_search.hpp"
#include "plan/stage/policy.hpp"

namespace garonne::plan {
namespace {

// Of one core's time this is half a second whatever the size.
std::int64_t most_traces(const StageProblem& problem) {
  const auto tasks = static_cast<std::int64_t>(problem.tasks.graph.tasks.size());
  return std::clamp<std::int64_t>(1'000'000 / std::max<std::int64_t>(tasks, 1), 1'000, 20'000);
}

bool too_long(const StageProblem& problem, std::size_t steps) {
  return static_cast<std::int64_t>(steps) > problem.most_steps;
}

StageSolver solver_of(const Policy& policy) {
  const auto family = policy.schedules;
  return {policy.name, policy.help,
          [family](const StageProblem& problem, std::int64_t, const NodeSchedule&) {
            return family(problem.model);
          },
          [family](const StageProblem& problem) { return family(problem.model); }};
}

std::vector<NodeSchedule> greedy(const StageProblem& problem, std::int64_t budget_bytes,
                                 const NodeSchedule&);
std::vector<NodeSchedule> greedy_leanest(const StageProblem& problem);

// The chain's model of memory counts a little more than the nodes need, so that sequences for a
// larger budget may fit, too: the planner traces them all.
constexpr double largest_chain_budget = 1.3;
constexpr int chain_budgets = 48;

// Of 4 bytes each; chains of up to 255 blocks have all slots.
RotorOptions chain_options(const Chain& chain) {
  constexpr std::int64_t most_cells = std::int64_t{1} << 26;
  const auto blocks = static_cast<std::int64_t>(chain.blocks.size());
  RotorOptions options;
  options.slots = std::clamp<std::int64_t>(most_cells / (blocks * (blocks + 1) / 2), 200, 2'000);
  return options;
}

// What is there for the chain where all of the micro-batch may take `budget_bytes`; 0 for nothing.
std::int64_t available_to_chain(const StageProblem& problem, std::int64_t budget_bytes) {
  const NodeSchedule all = recompute_on_demand(problem.model, keep_everything(problem.model));
  const LivenessTrace keep_all =
      trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, all));
  return std::max<std::int64_t>(
      0, std::min(budget_bytes, keep_all.peak_bytes) - problem.chain->resident_bytes);
}

// None where there is no sequence, or one of too many steps.
std::optional<NodeSchedule> chain_schedule(const StageProblem& problem, const RotorTable& table,
                                           std::int64_t budget_bytes) {
  const auto sequence = table.sequence(budget_bytes);
  if (!sequence) return std::nullopt;
  NodeSchedule schedule = expand(problem.model, *problem.chain, *sequence);
  if (too_long(problem, schedule.size())) return std::nullopt;
  return schedule;
}

std::vector<NodeSchedule> rotor(const StageProblem& problem, std::int64_t budget_bytes,
                                const NodeSchedule&) {
  if (!problem.chain) return {};
  const std::int64_t available = available_to_chain(problem, budget_bytes);
  if (available == 0) return {};
  const auto most =
      static_cast<std::int64_t>(largest_chain_budget * static_cast<double>(available));
  const RotorTable table(problem.chain->chain, most, chain_options(problem.chain->chain));
  const std::int64_t least = table.minimum_budget_bytes();
  std::vector<NodeSchedule> found;
  for (int k = 0; k < chain_budgets && least <= most; ++k) {
    auto schedule =
        chain_schedule(problem, table, least + (most - least) * k / (chain_budgets - 1));
    if (schedule) found.push_back(std::move(*schedule));
  }
  return found;
}

// Of deep models the least budget takes too many steps: then about the least that does not.
std::vector<NodeSchedule> rotor_shortest(const StageProblem& problem, std::int64_t too_little) {
  const std::int64_t all = available_to_chain(problem, std::numeric_limits<std::int64_t>::max());
  auto enough = static_cast<std::int64_t>(largest_chain_budget * static_cast<double>(all));
  if (enough <= too_little) return {};
  const RotorTable table(problem.chain->chain, enough, chain_options(problem.chain->chain));
  std::optional<NodeSchedule> found = chain_schedule(problem, table, enough);
  while (found && enough - too_little > enough / 1024) {
    const std::int64_t between = too_little + (enough - too_little) / 2;
    auto leaner = chain_schedule(problem, table, between);
    (leaner ? enough : too_little) = between;
    if (leaner) found = std::move(leaner);
  }
  if (!found) return {};
  return {std::move(*found)};
}

std::vector<NodeSchedule> rotor_leanest(const StageProblem& problem) {
  if (!problem.chain) return {};
  // Any budget tells the least one.
  RotorOptions options;
  options.slots = 1;
  const RotorTable table(problem.chain->chain, 1, options);
  const std::int64_t bytes = table.minimum_budget_bytes();
  const RotorTable least(problem.chain->chain, bytes, options);
  auto schedule = chain_schedule(problem, least, bytes);
  if (schedule) return {std::move(*schedule)};
  return rotor_shortest(problem, bytes);
}

// What more rounds find on transformers of 4 to 24 layers is within a few parts in a thousand.
constexpr std::int64_t search_rounds = 1'000;

struct Traced {
  TaskSchedule schedule;
  std::int64_t peak_bytes = 0;
  double seconds = 0;
};

// Whichever fits and is fastest, else the leanest.
std::optional<Traced> best_of(const StageProblem& problem, std::vector<NodeSchedule> candidates,
                              std::int64_t budget_bytes, std::optional<Traced> best) {
  for (const auto& candidate : candidates) {
    Traced traced{to_task_schedule(problem.tasks, candidate), 0, 0};
    const LivenessTrace trace = trace_liveness(problem.tasks.graph, traced.schedule);
    traced.peak_bytes = trace.peak_bytes;
    traced.seconds = trace.seconds;
    const bool fits = traced.peak_bytes <= budget_bytes;
    const bool best_fits = best && best->peak_bytes <= budget_bytes;
    const bool wins = !best || (fits != best_fits ? fits
                                : fits            ? traced.seconds < best->seconds
                                                  : traced.peak_bytes < best->peak_bytes);
    if (wins) best = std::move(traced);
  }
  return best;
}

Traced improved(const StageProblem& problem, const Traced& start, std::int64_t budget_bytes) {
  GraphSolverOptions options;
  options.iterations = search_rounds;
  Traced better{improve_schedule(problem.tasks.graph, start.schedule, budget_bytes, options), 0, 0};
  const LivenessTrace trace = trace_liveness(problem.tasks.graph, better.schedule);
  better.peak_bytes = trace.peak_bytes;
  better.seconds = trace.seconds;
  return better;
}

// A search is good at reaching a budget that is near: steps down that are halved where it fails.
Traced descended(const StageProblem& problem, Traced best) {
  std::int64_t step = best.peak_bytes / 16;
  for (int attempt = 0; attempt < 12 && step > best.peak_bytes / 1024; ++attempt) {
    const std::int64_t target = best.peak_bytes - step;
    Traced lower = improved(problem, best, target);
    if (too_long(problem, lower.schedule.size())) break;
    if (lower.peak_bytes > target) step /= 2;
    if (lower.peak_bytes < best.peak_bytes) best = std::move(lower);
  }
  return best;
}

std::vector<NodeSchedule> search(const StageProblem& problem, std::int64_t budget_bytes,
                                 const NodeSchedule& lean) {
  std::optional<Traced> start = best_of(problem, {lean}, budget_bytes, std::nullopt);
  for (const auto& policy : policies()) {
    start = best_of(problem, policy.schedules(problem.model), budget_bytes, std::move(start));
  }
  start = best_of(problem, greedy(problem, budget_bytes, lean), budget_bytes, std::move(start));
  start = best_of(problem, rotor(problem, budget_bytes, lean), budget_bytes, std::move(start));
  if (!start) return {};
  Traced better = improved(problem, *start, budget_bytes);
  if (too_long(problem, better.schedule.size())) better = std::move(*start);
  return {to_node_schedule(problem.model, problem.tasks, better.schedule)};
}

std::vector<NodeSchedule> search_leanest_of_all(const StageProblem& problem) {
  std::optional<Traced> start;
  for (const auto& policy : policies()) {
    start = best_of(problem, policy.schedules(problem.model), 0, std::move(start));
  }
  start = best_of(problem, greedy_leanest(problem), 0, std::move(start));
  start = best_of(problem, rotor_leanest(problem), 0, std::move(start));
  if (!start) return {};
  return {to_node_schedule(problem.model, problem.tasks,
                           descended(problem, std::move(*start)).schedule)};
}

std::vector<NodeSchedule> greedy(const StageProblem& problem, std::int64_t budget_bytes,
                                 const NodeSchedule&) {
  auto found = search_kept(problem.model, problem.tasks, budget_bytes, most_traces(problem));
  if (!found) return {};
  return {std::move(found->schedule)};
}

std::vector<NodeSchedule> greedy_leanest(const StageProblem& problem) {
  return {search_leanest(problem.model, problem.tasks, most_traces(problem)).schedule};
}

}  // namespace

StageProblem make_stage_problem(const ModelGraph& model, const StepShape& step,
                                GradientBuckets buckets, const OptionCache& cache) {
  StageProblem problem{model, make_task_graph(model, step, buckets), std::nullopt,
                       most_steps_of_program / std::max(step.micro_batches, 1)};
  problem.chain = make_stage_chain(model, problem.tasks, cache);
  return problem;
}

const std::vector<StageSolver>& stage_solvers() {
  static const std::vector<StageSolver> registry = [] {
    std::vector<StageSolver> solvers;
    for (const auto& policy : policies()) solvers.push_back(solver_of(policy));
    solvers.push_back({"greedy", "drop single nodes by seconds for bytes, then exchange", greedy,
                       greedy_leanest});
    solvers.push_back({"rotor",
                       "the optimal persistent schedule of the chain of blocks, each with the "
                       "options of what it keeps",
                       rotor, rotor_leanest});
    solvers.push_back({"search", "the best of all others, improved by a search over single nodes",
                       search, search_leanest_of_all});
    return solvers;
  }();
  return registry;
}

}  // namespace garonne::plan
