#include "train/plans/grid_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "plan/grid/block_planner.hpp"
#include "plan/model/group_links.hpp"
#include "plan/program/replay.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/step_parts.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

// What decides which blocks of a stage run again: equal stages get equal plans.
std::string kind_of_stage(const Setup& setup) {
  const plan::StepShape& step = setup.step;
  std::string text =
      fmt::format("{} {} {} {} {} ", step.micro_batches, step.zero, step.bucket_bytes,
                  step.data_group.size(), step.tensor_group.size());
  for (const auto& node : setup.model.graph.nodes)
    text += fmt::format("{} {};", node.cost_key, node.chunk);
  for (const auto& one : step.pipeline.order) {
    text += fmt::format("{}.{}.{} ", static_cast<int>(one.work), one.chunk, one.micro_batch);
  }
  return text;
}

// One candidate: Programs of all stages, replayed together.
class CandidatePlanner {
 public:
  explicit CandidatePlanner(const GridSearchWish& wish) : wish_(wish) {}

  bool measured() const { return measured_; }

  plan::GridOutcome plan(const plan::GridCandidate& candidate) {
    const Setup whole = setup_of(candidate);
    const plan::GridLinks links(wish_.cluster, whole.grid);
    const int stages = candidate.shape.pipeline;
    programs_.assign(static_cast<std::size_t>(stages), {});
    needed_.assign(static_cast<std::size_t>(stages), 0);
    failure_ = nullptr;
    std::atomic<int> next = 0;
    const auto work = [&] {
      for (int stage = next++; stage < stages; stage = next++) plan_stage(whole, links, stage);
    };
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    for (unsigned k = 1; k < std::min(cores, static_cast<unsigned>(stages)); ++k)
      threads.emplace_back(work);
    work();
    for (auto& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    plan::GridOutcome outcome;
    outcome.needed_bytes = *std::max_element(needed_.begin(), needed_.end());
    outcome.fits = outcome.needed_bytes == 0;
    if (outcome.fits) replay(links, outcome);
    return outcome;
  }

  // The same node by node, which takes longer and finds what blocks do not. Throws PlanError with
  // the smallest budget of the candidate.
  plan::GridOutcome plan_by_node(const plan::GridCandidate& candidate) {
    const Setup whole = setup_of(candidate);
    const GridPlan grid = plan_grid(whole, wish_.budget_bytes, &wish_.cluster);
    programs_.clear();
    for (std::size_t stage = 0; stage < grid.stages.size(); ++stage) {
      const StagePlan& planned = grid.stages[stage];
      programs_.push_back(program_of_rank(planned.setup, planned.choice.program,
                                          whole.grid.rank_of({0, static_cast<int>(stage), 0})));
    }
    plan::GridOutcome outcome;
    outcome.fits = true;
    replay(plan::GridLinks(wish_.cluster, whole.grid), outcome);
    return outcome;
  }

 private:
  Setup setup_of(const plan::GridCandidate& candidate) {
    Setup whole = make_setup(with_candidate(wish_.config, candidate), wish_.facts, wish_.threads, 0,
                             device_facts(wish_.config, wish_.cluster));
    measured_ = apply_cluster(wish_.cluster, wish_.costs, whole);
    return whole;
  }

  void plan_stage(const Setup& whole, const plan::GridLinks& links, int stage) {
    try {
      Setup setup = setup_of_stage(whole, stage);
      set_links(links, stage, setup);
      const std::string kind = kind_of_stage(setup);
      std::optional<int> known;
      {
        const std::lock_guard lock(mutex_);
        const auto found = known_.find(kind);
        if (found != known_.end()) known = found->second;
      }
      check_evaluation(setup);
      plan::BlockPlan planned =
          plan::plan_by_blocks(setup.model.graph, setup.step, wish_.budget_bytes, known);
      {
        const std::lock_guard lock(mutex_);
        known_[kind] = planned.index;
      }
      Choice choice;
      choice.program = std::move(planned.program);
      programs_[static_cast<std::size_t>(stage)] =
          program_of_rank(setup, choice.program, whole.grid.rank_of({0, stage, 0}));
    } catch (const PlanError& error) {
      needed_[static_cast<std::size_t>(stage)] = error.needed_bytes();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
  }

  // Validation is under the same budget.
  void check_evaluation(const Setup& setup) const {
    if (setup.config.evaluation.batches == 0) return;
    plan::StepShape step = setup.step;
    step.gathers_ahead = 0;
    const std::int64_t peak =
        plan::replay(plan::make_forward_program(setup.model.graph, step, setup.model.graph.loss))
            .peak_bytes;
    if (peak > wish_.budget_bytes) throw PlanError(peak, wish_.budget_bytes, "for validation");
  }

  void replay(const plan::GridLinks& links, plan::GridOutcome& outcome) {
    const StepPartsOfStages stages(programs_, &links);
    for (const plan::Program& program : programs_) {
      outcome.peak_bytes.push_back(program.peak_bytes);
      outcome.plans.push_back(program.name);
    }
    const std::vector<plan::Prediction> predictions = plan::replay_pipeline(std::move(programs_));
    for (const auto& prediction : predictions)
      outcome.seconds = std::max(outcome.seconds, prediction.seconds);
    StepParts parts = stages.of(predictions);
    outcome.bubble_seconds = parts.bubble_seconds;
    outcome.inside_traffic = parts.inside_traffic;
    outcome.between_traffic = parts.between_traffic;
    outcome.parts = std::move(parts.parts);
  }

  const GridSearchWish& wish_;
  std::map<std::string, int> known_;  // by kind of stage: the index of its family
  std::mutex mutex_;
  std::vector<plan::Program> programs_;  // by stage
  std::vector<std::int64_t> needed_;     // by stage; 0 = it fits
  std::exception_ptr failure_;
  bool measured_ = false;
};

// A setup of the model alone, on one data rank and in one stage.
Setup setup_of_model(const GridSearchWish& wish, int tensor, bool sequence_parallel,
                     std::int64_t micro_batch) {
  plan::GridCandidate candidate;
  candidate.shape = {1, 1, tensor};
  candidate.sequence_parallel = sequence_parallel;
  candidate.micro_batch = micro_batch;
  candidate.bucket_bytes = wish.config.grid.bucket;
  RunConfig config = with_candidate(wish.config, candidate);
  config.train.global_batch = micro_batch;
  Setup setup =
      make_setup(config, wish.facts, wish.threads, 0, device_facts(wish.config, wish.cluster));
  apply_cluster(wish.cluster, wish.costs, setup);
  return setup;
}

// `wish` outlives it.
plan::BlocksOf blocks_of(const GridSearchWish& wish) {
  return [&wish](int tensor, bool sequence_parallel, std::int64_t micro_batch) {
    const Setup setup = setup_of_model(wish, tensor, sequence_parallel, micro_batch);
    return plan::block_costs(setup.model.graph);
  };
}

void scale_link(double factor, plan::Link& link) {
  link.bytes_per_second *= factor;
  link.latency_seconds /= factor;
  for (plan::RatePoint& point : link.curve.points) point.bytes_per_second *= factor;
}

struct Rate {
  const char* name;
  void (*scale)(double factor, plan::Cluster& cluster);
};

// What plans depend on.
constexpr Rate rates[] = {
    {"operations",
     [](double factor, plan::Cluster& cluster) {
       for (const auto flops : {&plan::Cluster::float32_flops, &plan::Cluster::bfloat16_flops,
                                &plan::Cluster::float64_flops, &plan::Cluster::tfloat32_flops})
         cluster.*flops *= factor;
     }},
    {"memory", [](double factor, plan::Cluster& cluster) { cluster.bytes_per_second *= factor; }},
    {"links inside nodes",
     [](double factor, plan::Cluster& cluster) { scale_link(factor, cluster.inside_node); }},
    {"links between nodes",
     [](double factor, plan::Cluster& cluster) { scale_link(factor, cluster.between_nodes); }},
    {"the host's issue of kernels",
     [](double factor, plan::Cluster& cluster) { cluster.issue_seconds /= factor; }}};

std::vector<double> estimates_of(const GridSearchWish& wish, const plan::GridSearch& search,
                                 std::int64_t micro_batch) {
  const Setup model = setup_of_model(wish, 1, false, micro_batch);
  plan::GridEstimator estimator(wish.cluster, wish.budget_bytes, model.step, blocks_of(wish));
  std::vector<double> seconds;
  for (const plan::RankedGrid& grid : search.best)
    seconds.push_back(estimator.estimate(grid.candidate).seconds);
  return seconds;
}

std::vector<OtherRate> with_other_rates(const GridSearchWish& wish, const plan::GridSearch& search,
                                        std::int64_t micro_batch) {
  const std::vector<double> before = estimates_of(wish, search, micro_batch);
  std::vector<OtherRate> found;
  for (const Rate& rate : rates) {
    for (const double factor : {1 - wish.tolerance, 1 + wish.tolerance}) {
      GridSearchWish other = wish;
      rate.scale(factor, other.cluster);
      std::vector<double> seconds = estimates_of(other, search, micro_batch);
      for (std::size_t k = 0; k < seconds.size(); ++k)
        seconds[k] *= search.best[k].outcome.seconds / before[k];
      const auto best = std::min_element(seconds.begin(), seconds.end());
      found.push_back({rate.name, factor, static_cast<std::size_t>(best - seconds.begin()),
                       seconds.front() / *best - 1});
    }
  }
  return found;
}

[[noreturn]] void refuse_ranks(int ranks, const std::vector<plan::UnplannedGrid>& unplanned) {
  std::string reason = "no grid of so many ranks can be planned";
  if (!unplanned.empty()) {
    const auto& [candidate, of_first] = unplanned.front();
    reason += fmt::format("; {}: {}", plan::to_string(candidate), of_first);
  }
  throw ConfigError("--ranks", fmt::format("{}", ranks), reason);
}

}  // namespace

RunConfig with_candidate(const RunConfig& config, const plan::GridCandidate& candidate) {
  RunConfig result = config;
  result.grid.data = candidate.shape.data;
  result.grid.pipeline = candidate.shape.pipeline;
  result.grid.tensor = candidate.shape.tensor;
  result.grid.sequence_parallel = candidate.sequence_parallel;
  result.grid.schedule = candidate.schedule;
  const bool chosen =
      candidate.shape.pipeline > 1 && plan::traits_of(candidate.schedule).chunks.size() > 1;
  result.grid.chunks = chosen ? candidate.chunks : 0;
  result.grid.zero = candidate.zero;
  result.grid.bucket = candidate.bucket_bytes;
  result.train.micro_batch = candidate.micro_batch;
  return result;
}

std::string keys_of(const plan::GridCandidate& candidate) {
  const RunConfig config = with_candidate(RunConfig(), candidate);
  std::string text = fmt::format("[grid]\ndata = {}\npipeline = {}\ntensor = {}\n",
                                 config.grid.data, config.grid.pipeline, config.grid.tensor);
  if (config.grid.tensor > 1)
    text += fmt::format("sequence_parallel = {}\n", config.grid.sequence_parallel);
  if (config.grid.pipeline > 1) text += fmt::format("schedule = \"{}\"\n", config.grid.schedule);
  if (config.grid.chunks > 0) text += fmt::format("chunks = {}\n", config.grid.chunks);
  if (config.grid.data > 1)
    text += fmt::format("zero = {}\nbucket = {}\n", config.grid.zero, config.grid.bucket);
  return text + fmt::format("[train]\nmicro_batch = {}\n", config.train.micro_batch);
}

GridSearchAnswer search_grids(const GridSearchWish& wish) {
  const Setup model = setup_of_model(wish, 1, false, 1);
  plan::GridLimits limits;
  limits.ranks = wish.ranks;
  limits.global_batch = wish.config.train.global_batch;
  limits.blocks = model.model.graph.blocks();
  limits.most_tensor = wish.most_tensor > 0 ? wish.most_tensor : wish.cluster.devices_per_node;
  limits.least_bucket_bytes = wish.config.grid.bucket;
  const auto candidates = plan::grid_candidates(limits, wish.cluster);
  const auto search_within = [&](const GridSearchWish& within, CandidatePlanner& planner) {
    plan::GridEstimator estimator(within.cluster, within.budget_bytes, model.step,
                                  blocks_of(within));
    return plan::search_grids(
        candidates, estimator, within.budget_bytes,
        [&](const plan::GridCandidate& candidate) { return planner.plan(candidate); },
        within.options);
  };
  CandidatePlanner planner(wish);
  GridSearchAnswer answer;
  answer.search = search_within(wish, planner);
  plan::GridSearch& search = answer.search;
  if (search.refused == search.candidates) {
    throw ConfigError(
        "--ranks", fmt::format("{}", wish.ranks),
        fmt::format("no grid of so many ranks works: train.global_batch = {} has to be a multiple "
                    "of the data ranks, the {} blocks of the model are the most stages, and {} "
                    "tensor ranks the most that a node has",
                    wish.config.train.global_batch, limits.blocks, limits.most_tensor));
  }
  if (search.best.empty()) {
    // Which one needs least must not depend on the budget either.
    GridSearchWish nothing = wish;
    nothing.budget_bytes = 1;
    CandidatePlanner lean_planner(nothing);
    plan::GridSearch lean = search_within(nothing, lean_planner);
    if (lean.leanest.outcome.needed_bytes == 0)
      refuse_ranks(wish.ranks, search.unplanned.empty() ? lean.unplanned : search.unplanned);
    search.leanest = std::move(lean.leanest);
    try {
      search.leanest.outcome = planner.plan_by_node(search.leanest.candidate);
    } catch (const PlanError& error) {
      throw PlanError(error.needed_bytes(), wish.budget_bytes,
                      fmt::format("on {}", plan::to_string(search.leanest.candidate)));
    }
    search.best.push_back(search.leanest);
  }
  answer.measured = planner.measured();
  if (wish.tolerance > 0) {
    const std::int64_t micro_batch = search.best.front().candidate.micro_batch;
    answer.other_rates = with_other_rates(wish, search, micro_batch);
  }
  return answer;
}

}  // namespace garonne::train
