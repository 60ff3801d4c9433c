// Searches over grids: candidates, bounds, estimates, and the ten best against planning everything.
#include "plan/grid/grid_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>

#include "base/error.hpp"
#include "plan/grid/block_planner.hpp"
#include "plan/grid/block_table.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan {
namespace {

Cluster small_cluster() {
  Cluster cluster;
  cluster.devices_per_node = 4;
  cluster.nodes = 16;
  cluster.memory_bytes = std::int64_t{1} << 30;
  cluster.inside_node = {1e-6, 10e9};
  cluster.between_nodes = {5e-6, 1e9};
  return cluster;
}

GridLimits limits(int ranks, std::int64_t batch) {
  GridLimits limits;
  limits.ranks = ranks;
  limits.global_batch = batch;
  limits.blocks = 6;
  limits.most_tensor = 4;
  return limits;
}

TEST(GridCandidates, AreWhatDividesAndNothingTwice) {
  const auto candidates = grid_candidates(limits(8, 16), small_cluster());
  std::set<std::string> seen;
  std::set<std::string> schedules;
  for (const auto& candidate : candidates) {
    EXPECT_EQ(candidate.shape.ranks(), 8);
    EXPECT_LE(candidate.shape.tensor, 4);
    EXPECT_LE(candidate.parts(), 6);
    EXPECT_EQ(candidate.shape.data * candidate.micro_batch * candidate.micro_batches, 16);
    EXPECT_TRUE(candidate.zero == 0 || candidate.shape.data > 1);
    EXPECT_TRUE(!candidate.sequence_parallel || candidate.shape.tensor > 1);
    EXPECT_TRUE(seen.insert(to_string(candidate)).second) << to_string(candidate);
    schedules.insert(candidate.schedule);
  }
  EXPECT_EQ(schedules, (std::set<std::string>{"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2",
                                              "zb-v", "dualpipev", "chimera"}));
  // One rank alone: a candidate for each micro-batch that divides 16.
  EXPECT_EQ(grid_candidates(limits(1, 16), small_cluster()).size(), 5u);
  // Seven stages are more than the blocks, and seven data ranks do not divide the batch.
  EXPECT_TRUE(grid_candidates(limits(7, 16), small_cluster()).empty());
}

TEST(GridCandidates, ArePinnedInPart) {
  GridLimits pinned = limits(16, 32);
  pinned.pins.tensor = 8;  // above most_tensor
  pinned.pins.zero = 1;
  pinned.pins.micro_batch = 2;
  pinned.pins.bucket_bytes = 12345;
  const auto candidates = grid_candidates(pinned, small_cluster());
  ASSERT_FALSE(candidates.empty());
  for (const auto& candidate : candidates) {
    EXPECT_EQ(candidate.shape.tensor, 8);
    EXPECT_EQ(candidate.zero, 1);
    EXPECT_EQ(candidate.micro_batch, 2);
    EXPECT_EQ(candidate.bucket_bytes, 12345);
    EXPECT_EQ(candidate.shape.data, 2);  // ZeRO wants data ranks
  }
  // What is pinned takes away, and nothing else changes.
  GridLimits open = limits(8, 16);
  const auto all = grid_candidates(open, small_cluster());
  open.pins.pipeline = 2;
  open.pins.schedule = "1f1b";
  open.pins.sequence_parallel = false;
  std::vector<GridCandidate> expected;
  for (const auto& candidate : all) {
    if (candidate.shape.pipeline == 2 && candidate.schedule == "1f1b" &&
        !candidate.sequence_parallel)
      expected.push_back(candidate);
  }
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(grid_candidates(open, small_cluster()), expected);
  // Chunks are of schedules that leave them open, on several stages; other numbers than are tried
  // otherwise will do.
  GridLimits chunks = limits(8, 16);
  chunks.pins.chunks = 3;
  const auto chunked = grid_candidates(chunks, small_cluster());
  ASSERT_FALSE(chunked.empty());
  for (const auto& candidate : chunked) {
    EXPECT_EQ(candidate.schedule, "interleaved");
    EXPECT_EQ(candidate.chunks, 3);
    EXPECT_GT(candidate.shape.pipeline, 1);
  }
  // A schedule says nothing of one stage.
  GridLimits schedule = limits(2, 16);
  schedule.pins.schedule = "zb-h1";
  std::set<int> stages;
  for (const auto& candidate : grid_candidates(schedule, small_cluster())) {
    stages.insert(candidate.shape.pipeline);
    if (candidate.shape.pipeline > 1) {
      EXPECT_EQ(candidate.schedule, "zb-h1");
    }
  }
  EXPECT_EQ(stages, (std::set<int>{1, 2}));
  GridLimits none = limits(8, 16);
  none.pins.micro_batch = 3;
  EXPECT_TRUE(grid_candidates(none, small_cluster()).empty());
}

// grid.bucket = 0 is a bucket for each parameter, from which larger ones grow all the same.
TEST(GridCandidates, BucketsGrowFromNothingToo) {
  GridLimits none = limits(8, 16);
  none.least_bucket_bytes = 0;
  GridLimits one = limits(8, 16);
  one.least_bucket_bytes = 1;
  const auto candidates = grid_candidates(none, small_cluster());
  const auto expected = grid_candidates(one, small_cluster());
  ASSERT_EQ(candidates.size(), expected.size());
  for (std::size_t i = 0; i < candidates.size(); ++i)
    EXPECT_EQ(candidates[i].bucket_bytes, expected[i].bucket_bytes);
}

TEST(BlockFamily, KeepsLessAndLess) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const ModelGraph graph = test::random_graph(seed);
    const BlockFamily family(graph);
    const StepShape step = test::step_shape(2, 1, 0);
    for (int index = 1; index < family.size(); ++index)
      EXPECT_LE(family.saved_bytes(index)[0], family.saved_bytes(index - 1)[0]) << seed;
    double seconds = 0;
    for (const int index : {0, family.size() - 1}) {
      const Program program = make_training_program(
          graph, step, same_for_all(family.schedule(index), step.micro_batches));
      const Prediction prediction = replay(program);
      EXPECT_GE(prediction.seconds, seconds);
      seconds = prediction.seconds;
    }
  }
}

TEST(BlockFamily, CountsWhatIsOnTheWay) {
  const auto forward = [](int m) { return PipelineOperation{PipelineWork::Forward, 0, m}; };
  const auto backward = [](int m) { return PipelineOperation{PipelineWork::Backward, 0, m}; };
  EXPECT_EQ(most_on_the_way(
                {forward(0), forward(1), backward(0), forward(2), backward(1), backward(2)}, {7}),
            14);
  EXPECT_EQ(most_on_the_way({}, {7, 5}), 12);
}

TEST(BlockPlanner, FindsTheFirstThatFits) {
  const ModelGraph graph = test::chain(8, 3);
  const StepShape step = test::step_shape(3, 1, 0);
  const BlockFamily family(graph);
  const auto peak = [&](int index) {
    return replay(make_training_program(graph, step, same_for_all(family.schedule(index), 3)))
        .peak_bytes;
  };
  const std::int64_t most = peak(0);
  const std::int64_t least = peak(family.size() - 1);
  ASSERT_LT(least, most);
  for (std::int64_t budget = least; budget <= most; budget += (most - least) / 17) {
    const BlockPlan plan = plan_by_blocks(graph, step, budget);
    EXPECT_LE(plan.prediction.peak_bytes, budget);
    EXPECT_EQ(plan.prediction.peak_bytes, peak(plan.index));
    if (plan.index > 0) {
      EXPECT_GT(peak(plan.index - 1), budget);
    }
    EXPECT_EQ(plan_by_blocks(graph, step, budget, plan.index).index, plan.index);
  }
  EXPECT_THROW(plan_by_blocks(graph, step, least / 2), PlanError);
}

// Six blocks whose seconds and bytes shrink with tensor ranks and grow with the micro-batch.
std::vector<BlockCost> made_up_blocks(int tensor, std::int64_t micro_batch) {
  if (tensor == 4) throw ConfigError("grid.tensor", "4", "three heads");
  std::vector<BlockCost> blocks;
  const double work = static_cast<double>(micro_batch) / tensor;
  for (int b = 0; b < 6; ++b) {
    BlockCost block;
    block.forward_seconds = (b == 0 ? 0.2e-3 : 1e-3) * work;
    block.backward_seconds = block.forward_seconds;
    block.weight_seconds = block.forward_seconds;
    block.forward_link_seconds = block.backward_link_seconds = tensor > 1 ? 0.1e-3 * work : 0;
    block.cut_seconds = 3 * block.forward_seconds + 2 * block.forward_link_seconds;
    block.input_bytes = b == 0 ? 0 : micro_batch << 20;
    block.working_bytes = 4 * block.input_bytes;
    block.parameters = {{.parameter = b, .node = b, .elements = (std::int64_t{4} << 20) / tensor}};
    const auto saved = static_cast<std::int64_t>(work * (20 << 20));
    block.options = {{-1, saved, 0}, {1, saved / 4, 0.3e-3 * work}, {2, 0, 1e-3 * work}};
    blocks.push_back(block);
  }
  return blocks;
}

// Takes a bit longer than the estimate says, by a number that only the candidate decides.
GridOutcome pretend(GridEstimator& estimator, const GridCandidate& candidate, unsigned seed) {
  const GridBounds bounds = estimator.bounds(candidate);
  const GridEstimate estimate = estimator.estimate(candidate);
  std::mt19937 generator(seed);
  for (const char letter : to_string(candidate)) {
    generator.seed(static_cast<unsigned>(generator()) ^ static_cast<unsigned char>(letter));
  }
  const double noise = static_cast<double>(generator() % 1000) / 1000.0;
  GridOutcome outcome;
  outcome.fits = estimate.fits;
  outcome.needed_bytes = outcome.fits ? 0 : estimate.bytes;
  outcome.seconds = std::max(bounds.seconds, (0.8 + 0.6 * noise) * estimate.seconds);
  return outcome;
}

TEST(GridSearch, FindsTheTenBestOfAll) {
  for (const std::int64_t budget : {std::int64_t{200} << 20, std::int64_t{600} << 20}) {
    for (unsigned seed = 0; seed < 3; ++seed) {
      StepShape step = test::step_shape(1, 1, 4 << 20);
      step.update_seconds_per_element = 1e-10;
      const auto candidates = grid_candidates(limits(8, 16), small_cluster());
      GridEstimator estimator(small_cluster(), budget, step,
                              [](int tensor, bool, std::int64_t micro_batch) {
                                return made_up_blocks(tensor, micro_batch);
                              });
      const auto plan = [&](const GridCandidate& candidate, double) {
        return pretend(estimator, candidate, seed);
      };
      GridSearchOptions options;
      options.most_micro_batches = 1'000'000;
      const GridSearch quick = search_grids(candidates, estimator, budget, plan, options);
      options.exhaustive = true;
      const GridSearch all = search_grids(candidates, estimator, budget, plan, options);
      ASSERT_EQ(quick.best.size(), all.best.size());
      ASSERT_EQ(quick.best.size(), 10u);
      for (std::size_t k = 0; k < quick.best.size(); ++k) {
        EXPECT_EQ(quick.best[k].outcome.seconds, all.best[k].outcome.seconds) << k;
        for (std::size_t other = 0; other < k; ++other)
          EXPECT_FALSE(same_layout(all.best[k].candidate, all.best[other].candidate));
      }
      EXPECT_TRUE(quick.proven);
      EXPECT_LT(quick.planned, all.planned / 2);
      EXPECT_GT(all.refused, 0);
    }
  }
}

// Whoever plans, in whatever order it is through: what the search says is the same.
TEST(GridSearch, IsTheSameHoweverManyArePlannedAtOnce) {
  StepShape step = test::step_shape(1, 1, 4 << 20);
  step.update_seconds_per_element = 1e-10;
  const auto candidates = grid_candidates(limits(8, 16), small_cluster());
  for (const std::int64_t budget :
       {std::int64_t{1} << 20, std::int64_t{200} << 20, std::int64_t{600} << 20}) {
    GridEstimator estimator(small_cluster(), budget, step,
                            [](int tensor, bool, std::int64_t micro_batch) {
                              return made_up_blocks(tensor, micro_batch);
                            });
    std::map<std::string, GridOutcome> outcomes;
    for (const GridCandidate& candidate : candidates) {
      try {
        outcomes[to_string(candidate)] = pretend(estimator, candidate, 1);
      } catch (const ConfigError&) {
        continue;  // is refused before it is planned
      }
    }
    const auto search = [&](int at_once, std::int64_t most_micro_batches) {
      GridSearchOptions options;
      options.at_once = at_once;
      options.most_micro_batches = most_micro_batches;
      return search_grids(
          candidates, estimator, budget,
          [&](const GridCandidate& candidate, double useless_seconds) {
            if (candidate.schedule == "zb-h2" && candidate.shape.pipeline > 1)
              throw ConfigError("grid.schedule", candidate.schedule, "is none of these");
            GridOutcome outcome = outcomes.at(to_string(candidate));
            // Whether these fit is found out only where it matters.
            if (candidate.zero == 1 && outcome.fits && outcome.seconds < useless_seconds) {
              outcome.fits = false;
              outcome.needed_bytes = budget + 1;
            }
            return outcome;
          },
          options);
    };
    for (const std::int64_t most_micro_batches : {std::int64_t{60}, std::int64_t{1'000'000}}) {
      const GridSearch one = search(1, most_micro_batches);
      for (const int at_once : {2, 3, 16}) {
        const GridSearch some = search(at_once, most_micro_batches);
        EXPECT_EQ(some.planned, one.planned);
        EXPECT_EQ(some.proven, one.proven);
        EXPECT_EQ(some.too_large, one.too_large);
        ASSERT_EQ(some.unplanned.size(), one.unplanned.size());
        for (std::size_t k = 0; k < one.unplanned.size(); ++k)
          EXPECT_EQ(some.unplanned[k].candidate, one.unplanned[k].candidate);
        ASSERT_EQ(some.best.size(), one.best.size());
        for (std::size_t k = 0; k < one.best.size(); ++k) {
          EXPECT_EQ(some.best[k].candidate, one.best[k].candidate);
          EXPECT_NE(some.best[k].candidate.zero, 1);
          EXPECT_EQ(some.best[k].outcome.seconds, one.best[k].outcome.seconds);
        }
        EXPECT_EQ(some.leanest.candidate, one.leanest.candidate);
      }
    }
  }
}

// Closer plans, which fit where others do not: a share above the bound that only the candidate
// decides, and what is beyond the budget goes there and back.
GridOutcome pretend_closely(GridEstimator& estimator, const GridCandidate& candidate,
                            std::int64_t budget, unsigned seed) {
  const GridOutcome without = pretend(estimator, candidate, seed + 1);
  const GridBounds bounds = estimator.bounds(candidate);
  GridOutcome outcome;
  outcome.fits = without.fits || bounds.bytes < 2 * budget;
  outcome.needed_bytes = outcome.fits ? 0 : bounds.bytes;
  outcome.seconds = std::max(bounds.seconds, 0.9 * without.seconds) +
                    1e-10 * static_cast<double>(std::max<std::int64_t>(0, bounds.bytes - budget));
  return outcome;
}

TEST(GridSearch, PlansCloselyWhatMayBeTheFastest) {
  StepShape step = test::step_shape(1, 1, 4 << 20);
  step.update_seconds_per_element = 1e-10;
  const auto candidates = grid_candidates(limits(8, 16), small_cluster());
  int gained = 0;
  int found_fastest = 0;
  int all_searches = 0;
  for (const std::int64_t budget :
       {std::int64_t{30} << 20, std::int64_t{60} << 20, std::int64_t{200} << 20}) {
    for (unsigned seed = 0; seed < 4; ++seed, ++all_searches) {
      GridEstimator estimator(small_cluster(), budget, step,
                              [](int tensor, bool, std::int64_t micro_batch) {
                                return made_up_blocks(tensor, micro_batch);
                              });
      // By a search through all of them.
      double least_without = std::numeric_limits<double>::infinity();
      double least = least_without;
      std::map<std::string, std::pair<GridOutcome, GridOutcome>> outcomes;  // without, closely
      for (const GridCandidate& candidate : candidates) {
        try {
          const auto& [without, closely] = outcomes[to_string(candidate)] = {
              pretend(estimator, candidate, seed),
              pretend_closely(estimator, candidate, budget, seed)};
          if (without.fits) least_without = std::min(least_without, without.seconds);
          if (closely.fits) least = std::min(least, closely.seconds);
        } catch (const ConfigError&) {
          continue;  // is refused before it is planned
        }
      }
      least = std::min(least, least_without);
      const auto search = [&](int at_once, bool exhaustive, bool closer) {
        GridSearchOptions options;
        options.at_once = at_once;
        options.exhaustive = exhaustive;
        options.most_micro_batches = 1'000'000;
        if (closer) {
          options.seconds_per_byte_beyond = 1e-10;
          options.closely = [&](const GridCandidate& candidate, double) {
            return outcomes.at(to_string(candidate)).second;
          };
        }
        return search_grids(
            candidates, estimator, budget,
            [&](const GridCandidate& candidate, double) {
              return outcomes.at(to_string(candidate)).first;
            },
            options);
      };
      const GridSearch all = search(1, true, true);
      ASSERT_FALSE(all.best.empty());
      EXPECT_EQ(all.best.front().outcome.seconds, least);
      EXPECT_TRUE(all.proven);
      const GridSearch some = search(1, false, true);
      EXPECT_FALSE(some.proven);
      EXPECT_LE(some.closely_planned, 8);
      const GridSearch without = search(1, false, false);
      EXPECT_EQ(without.closely_planned, 0);
      const double fastest = some.best.empty() ? std::numeric_limits<double>::infinity()
                                               : some.best.front().outcome.seconds;
      // Never slower than without, and never faster than all.
      EXPECT_LE(fastest, least_without);
      EXPECT_GE(fastest, least);
      gained += fastest < least_without;
      found_fastest += fastest == least;
      for (const RankedGrid& one : some.best) {
        const auto& [first, closer] = outcomes.at(to_string(one.candidate));
        EXPECT_EQ(one.outcome.seconds, one.closely ? closer.seconds : first.seconds);
        EXPECT_TRUE(!one.closely || !first.fits || closer.seconds < first.seconds);
        EXPECT_GT(one.estimate.bytes, 0);
      }
      for (const int at_once : {2, 5}) {
        const GridSearch same = search(at_once, false, true);
        EXPECT_EQ(same.closely_planned, some.closely_planned);
        ASSERT_EQ(same.best.size(), some.best.size());
        for (std::size_t k = 0; k < some.best.size(); ++k) {
          EXPECT_EQ(same.best[k].candidate, some.best[k].candidate);
          EXPECT_EQ(same.best[k].outcome.seconds, some.best[k].outcome.seconds);
        }
      }
    }
  }
  EXPECT_GE(gained, all_searches / 3);
  EXPECT_GE(found_fastest, all_searches / 3);
}

// What is planned ahead and fails is no matter where its turn does not come; where it does, it is
// told.
TEST(GridSearch, FailuresOfWhatIsPlannedAheadWaitForTheirTurn) {
  StepShape step = test::step_shape(1, 1, 4 << 20);
  const auto candidates = grid_candidates(limits(8, 16), small_cluster());
  const std::int64_t budget = std::int64_t{600} << 20;
  GridEstimator estimator(small_cluster(), budget, step,
                          [](int tensor, bool, std::int64_t micro_batch) {
                            return made_up_blocks(tensor, micro_batch);
                          });
  std::mutex mutex;
  std::vector<std::string> asked;
  const auto search = [&](int at_once, const std::string& fails) {
    asked.clear();
    GridSearchOptions options;
    options.at_once = at_once;
    options.best = 1;
    return search_grids(
        candidates, estimator, budget,
        [&](const GridCandidate& candidate, double) {
          const std::lock_guard lock(mutex);
          asked.push_back(to_string(candidate));
          if (asked.back() == fails) throw std::runtime_error(fails);
          GridOutcome outcome;
          outcome.fits = true;
          outcome.seconds = 1e-9;  // no other can be faster
          return outcome;
        },
        options);
  };
  const std::string first = to_string(search(1, "").best.front().candidate);
  ASSERT_EQ(asked.size(), 1u);
  search(4, "");
  ASSERT_EQ(asked.size(), 4u);
  const auto other = std::find_if(asked.begin(), asked.end(),
                                  [&](const std::string& name) { return name != first; });
  const std::string ahead = *other;
  EXPECT_EQ(to_string(search(4, ahead).best.front().candidate), first);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), ahead), 1);
  EXPECT_THROW(search(4, first), std::runtime_error);
}

// Two schedules that take equally long, of which the second holds more: it would only push another
// grid out of the ten.
TEST(GridSearch, SchedulesThatTakeEquallyLongAreOneOfTheTen) {
  StepShape step = test::step_shape(1, 1, 4 << 20);
  step.update_seconds_per_element = 1e-10;
  const auto candidates = grid_candidates(limits(8, 16), small_cluster());
  const std::int64_t budget = std::int64_t{1} << 40;
  GridEstimator estimator(small_cluster(), budget, step,
                          [](int tensor, bool, std::int64_t micro_batch) {
                            return made_up_blocks(tensor, micro_batch);
                          });
  int shown = 0;
  for (unsigned seed = 0; seed < 3; ++seed) {
    const auto plan = [&](const GridCandidate& candidate, double) {
      GridCandidate twin = candidate;
      const bool has_twin = candidate.shape.pipeline > 1 &&
                            (candidate.schedule == "zb-h1" || candidate.schedule == "zb-h2");
      if (has_twin) twin.schedule = candidate.schedule == "zb-h1" ? "zb-h2" : "zb-h1";
      GridOutcome outcome = pretend(estimator, candidate, seed);
      outcome.seconds = std::max(outcome.seconds, pretend(estimator, twin, seed).seconds);
      // Of the same sums in another order.
      if (candidate.schedule == "zb-h2") outcome.seconds *= 1 + 1e-15;
      outcome.peak_bytes = {candidate.schedule == "zb-h2" ? 2 : 1};
      return outcome;
    };
    GridSearchOptions options;
    options.most_micro_batches = 1'000'000;
    const GridSearch quick = search_grids(candidates, estimator, budget, plan, options);
    options.exhaustive = true;
    const GridSearch all = search_grids(candidates, estimator, budget, plan, options);
    ASSERT_EQ(quick.best.size(), 10u);
    ASSERT_EQ(all.best.size(), 10u);
    for (std::size_t k = 0; k < all.best.size(); ++k) {
      EXPECT_EQ(quick.best[k].candidate, all.best[k].candidate) << k;
      EXPECT_NE(all.best[k].candidate.schedule, "zb-h2");
      shown += all.best[k].candidate.schedule == "zb-h1";
    }
  }
  EXPECT_GT(shown, 0);
}

TEST(GridSearch, SaysWhoNeedsLeastWhereNothingFits) {
  const StepShape step = test::step_shape(1, 1, 4 << 20);
  const auto candidates = grid_candidates(limits(4, 8), small_cluster());
  const std::int64_t budget = 1 << 20;
  GridEstimator estimator(small_cluster(), budget, step,
                          [](int tensor, bool, std::int64_t micro_batch) {
                            return made_up_blocks(tensor, micro_batch);
                          });
  std::int64_t least = std::int64_t{1} << 60;
  for (const auto& candidate : candidates) {
    try {
      least = std::min(least, estimator.estimate(candidate).bytes);
    } catch (const ConfigError&) {
      continue;
    }
  }
  const GridSearch search = search_grids(
      candidates, estimator, budget,
      [&](const GridCandidate& candidate, double) { return pretend(estimator, candidate, 0); }, {});
  EXPECT_TRUE(search.best.empty());
  EXPECT_EQ(search.leanest.outcome.needed_bytes, least);
}

// One that cannot be planned is left out with its reason, and the others are what they would be.
TEST(GridSearch, LeavesOutWhatCannotBePlanned) {
  StepShape step = test::step_shape(1, 1, 4 << 20);
  step.update_seconds_per_element = 1e-10;
  const auto candidates = grid_candidates(limits(8, 16), small_cluster());
  for (const std::int64_t budget : {std::int64_t{1} << 20, std::int64_t{600} << 20}) {
    GridEstimator estimator(small_cluster(), budget, step,
                            [](int tensor, bool, std::int64_t micro_batch) {
                              return made_up_blocks(tensor, micro_batch);
                            });
    const auto search = [&](const std::function<bool(const GridCandidate&)>& refuses) {
      GridSearchOptions options;
      options.most_micro_batches = 1'000'000;
      return search_grids(
          candidates, estimator, budget,
          [&](const GridCandidate& candidate, double) {
            if (refuses(candidate)) throw ConfigError("train.global_batch", "16", "too many");
            return pretend(estimator, candidate, 0);
          },
          options);
    };
    const GridSearch whole = search([](const auto&) { return false; });
    EXPECT_TRUE(whole.unplanned.empty());
    const bool fits = !whole.best.empty();
    const GridCandidate first = fits ? whole.best.front().candidate : whole.leanest.candidate;
    const GridSearch rest =
        search([&](const auto& candidate) { return same_layout(candidate, first); });
    ASSERT_FALSE(rest.unplanned.empty());
    for (const UnplannedGrid& unplanned : rest.unplanned)
      EXPECT_TRUE(same_layout(unplanned.candidate, first));
    EXPECT_NE(rest.unplanned[0].reason.find("too many"), std::string::npos);
    EXPECT_EQ(rest.proven, whole.proven);
    if (fits) {
      ASSERT_EQ(rest.best.size(), 10u);
      for (std::size_t k = 0; k + 1 < rest.best.size(); ++k)
        EXPECT_EQ(rest.best[k].candidate, whole.best[k + 1].candidate);
    } else {
      EXPECT_GE(rest.leanest.outcome.needed_bytes, whole.leanest.outcome.needed_bytes);
      EXPECT_FALSE(same_layout(rest.leanest.candidate, first));
    }
    const GridSearch none = search([](const auto&) { return true; });
    EXPECT_TRUE(none.best.empty());
    EXPECT_EQ(none.leanest.outcome.needed_bytes, 0);
    EXPECT_EQ(none.planned, 0);
    EXPECT_FALSE(none.unplanned.empty());
  }
}

TEST(GridEstimator, NeverEstimatesBelowItsBounds) {
  const StepShape step = test::step_shape(1, 1, 4 << 20);
  for (const std::int64_t budget : {std::int64_t{50} << 20, std::int64_t{1} << 40}) {
    GridEstimator estimator(small_cluster(), budget, step,
                            [](int tensor, bool, std::int64_t micro_batch) {
                              return made_up_blocks(tensor, micro_batch);
                            });
    for (const auto& candidate : grid_candidates(limits(8, 32), small_cluster())) {
      if (candidate.shape.tensor == 4) continue;
      const GridBounds bounds = estimator.bounds(candidate);
      const GridEstimate estimate = estimator.estimate(candidate);
      EXPECT_GE(estimate.seconds, bounds.seconds) << to_string(candidate);
      EXPECT_GE(estimate.bytes, bounds.bytes) << to_string(candidate);
    }
  }
}

}  // namespace
}  // namespace garonne::plan
