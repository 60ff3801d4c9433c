// What the search over grids estimates, held against the Programs of the same candidates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "train/plans/grid_search.hpp"
#include "train/setup/config_choices.hpp"

namespace garonne::train {
namespace {

const std::string root = GARONNE_SOURCE_DIR;

template <typename Number>
Number one_of(std::initializer_list<Number> numbers, std::mt19937& random) {
  return *(numbers.begin() + random() % numbers.size());
}

// A GPT on a cluster of GPUs, small enough that kernels take as long to issue as to compute.
GridSearchRequest random_wish(std::mt19937& random, int ranks) {
  GridSearchRequest wish;
  wish.config = parse_config("", "a test", {}, config_choices());
  wish.config.model.hidden = one_of<std::int64_t>({256, 512, 1024, 2048}, random);
  wish.config.model.heads = wish.config.model.hidden / 64;
  wish.config.model.layers = one_of<std::int64_t>({2, 4, 12}, random);
  wish.config.model.sequence = one_of<std::int64_t>({256, 1024}, random);
  wish.config.model.vocabulary = one_of<std::int64_t>({1024, 50304}, random);
  wish.config.train.global_batch = one_of<std::int64_t>({4, 8, 16}, random);
  wish.config.train.precision = one_of<std::string>({"bfloat16", "float32"}, random);
  wish.config.evaluation.batches = 0;
  wish.facts.vocabulary = wish.config.model.vocabulary;
  wish.cluster = plan::load_cluster(root + "/config/clusters/dgx_h100.toml");
  wish.cluster.issue_seconds = one_of({0.0, 5e-6, 2e-5}, random);
  wish.ranks = ranks;
  wish.budget_bytes = one_of<std::int64_t>({8, 40}, random) << 30;
  wish.options.exhaustive = true;
  wish.options.best = 1000;
  return wish;
}

// Blocks are what it knows: within a hundredth in the middle, and a tenth where a step of a few
// milliseconds has kernels that wait for the host beside kernels that do not.
TEST(GridEstimate, IsTheProgramsOnOneRank) {
  std::mt19937 random(19);
  std::vector<double> off;
  for (int number = 0; number < 40; ++number) {
    const GridSearchRequest wish = random_wish(random, 1);
    GridSearchAnswer answer;
    try {
      answer = search_grids_of_run(wish);
    } catch (const PlanError&) {
      continue;
    }
    for (const plan::RankedGrid& grid : answer.search.best) {
      EXPECT_GE(grid.outcome.seconds, grid.bounds.seconds * (1 - 1e-12));
      off.push_back(std::abs(grid.estimate.seconds / grid.outcome.seconds - 1));
      EXPECT_LT(off.back(), 0.1) << number << " " << to_string(grid.candidate);
    }
  }
  ASSERT_GT(off.size(), 100U);
  std::sort(off.begin(), off.end());
  EXPECT_LT(off[off.size() / 2], 0.01);
  std::printf("estimates of %zu grids: off by %.1f %% in the middle, %.1f %% at most\n", off.size(),
              100 * off[off.size() / 2], 100 * off.back());
}

// How far estimates of the grids of random wishes are from their Programs.
// `communication`: processor seconds a byte. `flat`: of grids without stages, too.
std::vector<double> differences_of_pipelines(std::mt19937& random, int wishes, bool waits,
                                             double communication = 0, bool flat = false) {
  std::vector<double> off;
  for (int number = 0; number < wishes; ++number) {
    GridSearchRequest wish = random_wish(random, one_of({2, 4}, random));
    wish.config.model.layers = one_of<std::int64_t>({4, 8}, random);
    wish.config.train.global_batch = 8;
    wish.cluster.issue_seconds = waits ? one_of({5e-6, 2e-5}, random) : 0;
    wish.cluster.software.host_waits = waits;
    wish.cluster.host.communication_seconds_per_byte = communication;
    try {
      for (const plan::RankedGrid& grid : search_grids_of_run(wish).search.best) {
        EXPECT_GE(grid.outcome.seconds, grid.bounds.seconds * (1 - 1e-12))
            << number << " " << to_string(grid.candidate);
        if (grid.candidate.shape.pipeline == 1 && !flat) continue;
        off.push_back(std::abs(grid.estimate.seconds / grid.outcome.seconds - 1));
        if (off.back() > 0.1) {
          std::printf("%.1f %% (%g %g): %s, of %d layers, hidden %d\n", 100 * off.back(),
                      grid.estimate.seconds, grid.outcome.seconds,
                      to_string(grid.candidate).c_str(), static_cast<int>(wish.config.model.layers),
                      static_cast<int>(wish.config.model.hidden));
        }
      }
    } catch (const PlanError&) {
      continue;
    }
  }
  std::sort(off.begin(), off.end());
  std::printf(
      "estimates of %zu pipelines: off by %.1f %% in the middle, %.1f %% at nine of ten, "
      "%.1f %% at most\n",
      off.size(), 100 * off[off.size() / 2], 100 * off[off.size() * 9 / 10], 100 * off.back());
  return off;
}

TEST(GridEstimate, IsTheProgramsInPipelines) {
  std::mt19937 random(23);
  for (const bool waits : {false, true}) {
    const std::vector<double> off = differences_of_pipelines(random, 6, waits);
    ASSERT_GT(off.size(), 100U);
    // Where hosts wait for messages, the search knows less of what comes of it.
    EXPECT_LT(off[off.size() / 2], waits ? 0.04 : 0.01);
  }
}

// What communication takes of the processor makes estimates no worse than they are.
TEST(GridEstimate, CountsTheProcessorThatCommunicates) {
  for (const unsigned seed : {23U, 31U}) {
    const auto middle = [&](double communication) {
      std::mt19937 random(seed);
      const auto off = differences_of_pipelines(random, 6, false, communication, true);
      EXPECT_GT(off.size(), 100U);
      return off[off.size() / 2];
    };
    EXPECT_LT(middle(2e-12), middle(0) + 0.001) << seed;
  }
}

// Everything that divides, planned, against what bounds leave.
TEST(GridEstimate, TheSearchFindsWhatAllPlansWouldShow) {
  const char* const given = std::getenv("GARONNE_RANDOM_GRIDS");
  const int cases = given != nullptr ? std::atoi(given) : 4;
  std::mt19937 random(29);
  int compared = 0;
  std::int64_t planned = 0;
  std::int64_t all = 0;
  for (int number = 0; compared < cases; ++number) {
    GridSearchRequest wish = random_wish(random, one_of({1, 2, 3, 4, 6, 8}, random));
    wish.config.model.layers = one_of<std::int64_t>({2, 3, 4}, random);
    wish.config.train.global_batch = one_of<std::int64_t>({2, 4, 6, 8}, random);
    wish.cluster.devices_per_node = one_of({2, 4, 8}, random);
    wish.budget_bytes = one_of<std::int64_t>({1, 2, 8}, random) << 30;
    wish.options.best = 10;
    try {
      const GridSearchAnswer everything = search_grids_of_run(wish);
      wish.options.exhaustive = false;
      const GridSearchAnswer quick = search_grids_of_run(wish);
      ++compared;
      planned += quick.search.planned;
      all += everything.search.planned;
      ASSERT_EQ(quick.search.best.size(), everything.search.best.size()) << number;
      EXPECT_TRUE(quick.search.proven) << number;
      for (std::size_t k = 0; k < quick.search.best.size(); ++k) {
        EXPECT_EQ(quick.search.best[k].outcome.seconds, everything.search.best[k].outcome.seconds)
            << number << ", grid " << k;
      }
    } catch (const PlanError&) {
      continue;
    }
  }
  std::printf("%d searches planned %lld grids, of %lld\n", compared,
              static_cast<long long>(planned), static_cast<long long>(all));
}

}  // namespace
}  // namespace garonne::train
