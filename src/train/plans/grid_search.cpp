#include "train/plans/grid_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/in_threads.hpp"
#include "base/key_limits.hpp"
#include "train/plans/candidate_planner.hpp"

namespace garonne::train {
namespace {

// Programs of thousands of devices take hundreds of megabytes a candidate.
constexpr int most_planned_at_once = 8;

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

// For who estimates candidates. What goes below the device leaves bytes there, and what is updated
// there takes the device no time.
plan::GridEstimator estimator_of(const GridSearchRequest& wish, const Setup& model) {
  plan::StepShape step = model.step;
  if (!model.below.empty()) {
    step.update_seconds_per_element = 0;
    step.sums_seconds_per_element = 0;
    step.kernels.issue = 0;
  }
  return {wish.cluster, may_leave_device(model) ? most_key_bytes : wish.budget_bytes, step,
          blocks_of(wish)};
}

// Of a byte, in the fastest of the tiers.
double seconds_there_and_back(const plan::LowerTiers& below) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [tier, lower] : below.tiers) {
    const plan::TierLinks& links = lower.links;
    least = std::min(least, 1 / links.out.bytes_per_second + 1 / links.in.bytes_per_second);
  }
  return least;
}

std::vector<double> estimates_of(const GridSearchRequest& wish, const plan::GridSearch& search,
                                 std::int64_t micro_batch) {
  const Setup model = setup_of_model(wish, 1, false, micro_batch);
  plan::GridEstimator estimator = estimator_of(wish, model);
  std::vector<double> seconds;
  for (const plan::RankedGrid& grid : search.best)
    seconds.push_back(estimator.estimate(grid.candidate).seconds);
  return seconds;
}

std::vector<OtherRate> with_other_rates(const GridSearchRequest& wish,
                                        const plan::GridSearch& search, std::int64_t micro_batch) {
  const std::vector<double> before = estimates_of(wish, search, micro_batch);
  std::vector<OtherRate> found;
  for (const Rate& rate : rates) {
    for (const double factor : {1 - wish.tolerance, 1 + wish.tolerance}) {
      GridSearchRequest other = wish;
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

[[noreturn]] void refuse_pins(const GridSearchRequest& wish) {
  throw ConfigError("--ranks", fmt::format("{}", wish.ranks),
                    fmt::format("no grid of so many ranks has {}, which were given; leave one out "
                                "for the search to find",
                                describe_pins(wish)));
}

[[noreturn]] void refuse_ranks(int ranks, const std::vector<plan::UnplannedGrid>& unplanned) {
  std::string reason = "no grid of so many ranks can be planned";
  if (!unplanned.empty()) {
    const auto& [candidate, of_first] = unplanned.front();
    reason += fmt::format("; {}: {}", plan::to_string(candidate), of_first);
  }
  throw ConfigError("--ranks", fmt::format("{}", ranks), reason);
}

[[noreturn]] void refuse_all(const GridSearchRequest& wish, const plan::GridLimits& limits,
                             const plan::GridSearch& search) {
  std::string reason = fmt::format(
      "no grid of so many ranks works: train.global_batch = {} has to be a multiple of the data "
      "ranks, the {} blocks of the model are the most stages, and {} the most tensor ranks that a "
      "node has",
      wish.config.train.global_batch, limits.blocks, limits.most_tensor);
  if (search.refused > 0) {
    reason += fmt::format("; {}: {}", plan::to_string(search.first_refused.candidate),
                          search.first_refused.reason);
  }
  throw ConfigError("--ranks", fmt::format("{}", wish.ranks), reason);
}

}  // namespace

const std::vector<std::string>& searched_keys() {
  static const std::vector<std::string> keys = {
      "grid.data",   "grid.pipeline", "grid.tensor", "grid.sequence_parallel", "grid.schedule",
      "grid.chunks", "grid.zero",     "grid.bucket", "train.micro_batch"};
  return keys;
}

std::string describe_pins(const GridSearchRequest& wish) {
  std::string text;
  for (const auto& [key, value] : wish.pinned)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value);
  return text;
}

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

GridSearchAnswer search_grids_of_run(const GridSearchRequest& wish) {
  const Setup model = setup_of_model(wish, 1, false, 1);
  const plan::GridLimits limits = limits_of(wish, model);
  const auto candidates = plan::grid_candidates(limits, wish.cluster);
  if (candidates.empty() && !wish.pinned.empty()) refuse_pins(wish);
  const auto search_within = [&](const GridSearchRequest& within, CandidatePlanner& planner) {
    plan::GridEstimator estimator = estimator_of(within, model);
    plan::GridSearchOptions options = within.options;
    options.at_once = std::min(usable_cores(), most_planned_at_once);
    if (!model.below.empty() && !names_plan(model)) {
      options.seconds_per_byte_beyond = seconds_there_and_back(model.below);
      options.closely = [&](const plan::GridCandidate& candidate, double) {
        return planner.plan_closely(candidate, Effort::Few);
      };
    }
    return plan::search_grids(
        candidates, estimator, may_leave_device(model) ? most_key_bytes : within.budget_bytes,
        [&](const plan::GridCandidate& candidate, double useless_seconds) {
          return planner.plan(candidate, useless_seconds);
        },
        options);
  };
  CandidatePlanner planner(wish);
  GridSearchAnswer answer;
  answer.work =
      model_work(model, wish.config.train.global_batch, device_flops_of(wish.cluster, model));
  answer.search = search_within(wish, planner);
  plan::GridSearch& search = answer.search;
  if (search.refused == search.candidates) refuse_all(wish, limits, search);
  if (search.best.empty()) {
    // Which one needs least must not depend on the budget either.
    GridSearchRequest nothing = wish;
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
    answer.by_node = true;
  }
  answer.measured = planner.is_measured(search.best.front().candidate);
  if (wish.tolerance > 0) {
    const std::int64_t micro_batch = search.best.front().candidate.micro_batch;
    answer.other_rates = with_other_rates(wish, search, micro_batch);
  }
  return answer;
}

}  // namespace garonne::train
